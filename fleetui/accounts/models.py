"""The table of the cache that all web processes share: counters of attempts, and codes that were used."""

from django.db import models


class SharedCacheEntry(models.Model):
    """One entry of Django's database cache, which reads and writes the table with statements of its own."""

    cache_key = models.CharField(max_length=255, primary_key=True)
    value = models.TextField()
    expires = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "fleetui_shared_cache"

    def __str__(self) -> str:
        return self.cache_key
