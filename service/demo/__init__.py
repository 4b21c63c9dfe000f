"""`livejoin demo`: two centuries of American terms of office, replayed into live views.

`history` has the data and the views, `roads` the ways to send changes (REST, or Kafka and Spark), `board` what has arrived, `panel` the
display, `show` the demo itself; `produce` only sends the records, to a broker that is already running.
"""
