"""Ad hoc SQL over HTTP: the request (`query`), and the answer while its query runs (`running`)."""
