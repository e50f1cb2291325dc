"""Pages and API, as browsers and programs see them."""
