"""Ad hoc SQL over HTTP: the request (`query`), and the response while its query runs (`running`)."""
