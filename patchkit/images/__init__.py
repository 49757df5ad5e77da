"""Images wherever they are: one module a transport behind the protocol in ``model``."""
