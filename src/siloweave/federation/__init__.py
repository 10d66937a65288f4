"""Federation: typed messages, sealed replies, sites and transports. It knows no method."""
