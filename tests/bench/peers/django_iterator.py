"""All orders as CSV, as a view of Django's would write them: django_iterator.py URL FILE."""

import csv
import sys
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings
from django.db import models

url = urlsplit(sys.argv[1])
settings.configure(
    USE_TZ=True,
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": url.hostname,
            "PORT": url.port or 5432,
            "NAME": url.path.lstrip("/"),
            "USER": unquote(url.username or ""),
            "PASSWORD": unquote(url.password or ""),
        }
    },
)
django.setup()


class Order(models.Model):
    id = models.BigIntegerField(primary_key=True)
    code = models.TextField()
    status = models.TextField()
    total_amount = models.DecimalField(max_digits=12, decimal_places=2)
    created_at = models.DateTimeField()
    customer_name = models.TextField()
    note = models.TextField(null=True)
    organization_id = models.UUIDField()
    company_id = models.UUIDField()

    class Meta:
        app_label = "bench"
        managed = False
        db_table = "orders"


names = [field.attname for field in Order._meta.fields]
with open(sys.argv[2], "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(names)
    for order in Order.objects.iterator():
        writer.writerow([getattr(order, name) for name in names])
