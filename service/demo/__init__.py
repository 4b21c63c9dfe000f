"""`livejoin demo`: two centuries of American terms of office, replayed into live views.

`history` is the data and the views, `roads` how changes travel (REST, or Kafka and Spark), `board` what has arrived,
`panel` how it looks, `show` the play itself.
"""
