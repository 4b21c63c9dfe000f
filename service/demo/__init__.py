"""`livejoin demo`: two centuries of American terms of office, replayed into live views.

`history` has the data and the views, `kafka` the way through Kafka and Spark, `play` the demo itself.
"""
