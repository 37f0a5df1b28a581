"""An outbox relay of the simple kind: one event, its confirm, its row, and then the next.

    sequential_publisher.py BROKER EXCHANGE make|take|drop
    sequential_publisher.py BROKER EXCHANGE publish DATABASE

`make` declares the exchange and a durable queue for everything; `take` empties the queue and prints
how many messages were in it; `drop` deletes both.
"""

import sys

import pika
import psycopg

BATCH = 100
broker, exchange, command = sys.argv[1:4]
queue = exchange + ".queue"


def publish(channel, database):
    """Rows are read a hundred at a time; each is published, confirmed and recorded by itself."""
    due = (
        "SELECT d.id, e.event_type, e.body FROM deliveries d JOIN events e ON e.id = d.event_id "
        "WHERE d.handler = 'publish-job-event' AND d.status = 'PENDING' ORDER BY d.due_at LIMIT %s"
    )
    done = (
        "UPDATE deliveries SET status = 'DONE', "
        "finished_at = floor(extract(epoch FROM clock_timestamp()) * 1000) WHERE id = %s"
    )
    channel.confirm_delivery()
    persistent = pika.BasicProperties(delivery_mode=2, content_type="application/json")
    with psycopg.connect(database, autocommit=True) as connection:
        while rows := connection.execute(due, [BATCH]).fetchall():
            for delivery, event_type, body in rows:
                # Raises unless the broker confirms it and a queue takes it.
                channel.basic_publish(exchange, event_type, body, persistent, mandatory=True)
                connection.execute(done, [delivery])


def main():
    connection = pika.BlockingConnection(pika.URLParameters(broker))
    channel = connection.channel()
    if command == "make":
        channel.exchange_declare(exchange, "topic", durable=True)
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, exchange, "#")
    elif command == "take":
        print(channel.queue_purge(queue).method.message_count)
    elif command == "drop":
        channel.queue_delete(queue)
        channel.exchange_delete(exchange)
    else:
        publish(channel, sys.argv[4])
    connection.close()


main()
