"""The client, written once for asyncio. `livejoin._sync` is generated from this folder by `client/generate.py`."""
