"""A real SMTP server for tests: one process, one port, one behaviour.

Prints one JSON line {"port": …, "ca": …} when it listens; every message that it takes is written
to <folder>/<n>.eml with the envelope in <folder>/<n>.json. Ends when its standard input closes.

Behaviours, each once for every message unless told otherwise:
  --reply '451 4.7.1 later'     answers this at the end of DATA
  --reply-rcpt '550 5.1.1 …'    answers this to RCPT
  --times N                     behaves so for the first N messages only, then takes them
  --cut-after-data              takes the message, then breaks the connection without an answer
  --silent                      accepts connections and never says a word
  --tls none|starttls|wrapped   with a fresh certificate for 'localhost', its CA in <folder>/ca.pem
  --login USER:PASSWORD         takes nothing without this login
"""

import argparse
import asyncio
import json
import pathlib
import sys

from aiosmtpd.smtp import SMTP, AuthResult

from certificate import certificate


class Mailbox:
    def __init__(self, options):
        self.options = options
        self.behaved = 0
        self.taken = 0

    def behaves(self):
        self.behaved += 1
        return self.options.times is None or self.behaved <= self.options.times

    async def handle_RCPT(self, server, session, envelope, address, rcpt_options):
        if self.options.reply_rcpt and self.behaves():
            return self.options.reply_rcpt
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        if self.options.reply and self.behaves():
            return self.options.reply
        self.taken += 1
        folder = self.options.folder
        about = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "tls": self.options.tls == "wrapped" or session.ssl is not None,
            "login": bool(session.authenticated),
        }
        (folder / f"{self.taken}.json").write_text(json.dumps(about))
        partial = folder / f"{self.taken}.partial"
        partial.write_bytes(envelope.original_content)
        partial.rename(folder / f"{self.taken}.eml")
        if self.options.cut_after_data and self.behaves():
            server.transport.abort()
            await asyncio.sleep(3600)
        return "250 OK"


def authenticator(login):
    user, _, password = login.partition(":")

    def check(server, session, envelope, mechanism, data):
        good = (data.login, data.password) == (user.encode(), password.encode())
        # A server that repeats what it was told: no error of ours may repeat it too.
        message = None if good else f"535 5.7.8 wrong password {password} or {data.password}"
        return AuthResult(success=good, handled=False, message=message)

    return check


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--reply")
    parser.add_argument("--reply-rcpt")
    parser.add_argument("--times", type=int)
    parser.add_argument("--cut-after-data", action="store_true")
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--tls", choices=["none", "starttls", "wrapped"], default="none")
    parser.add_argument("--login")
    options = parser.parse_args()
    context = certificate(options.folder) if options.tls != "none" else None
    mailbox = Mailbox(options)

    def protocol():
        if options.silent:
            return asyncio.Protocol()
        return SMTP(
            mailbox,
            hostname="localhost",
            tls_context=context if options.tls == "starttls" else None,
            require_starttls=options.tls == "starttls",
            auth_required=options.login is not None,
            auth_require_tls=options.tls == "starttls",
            authenticator=authenticator(options.login) if options.login else None,
        )

    loop = asyncio.get_running_loop()
    wrapped = context if options.tls == "wrapped" else None
    server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=wrapped)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"port": port, "ca": str(options.folder / "ca.pem")}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


asyncio.run(main())
