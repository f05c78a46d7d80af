package api

// MaxCAData bounds the certificates that a gateway tells its peers of its API server, in
// bytes of PEM: some twenty authorities.
const MaxCAData = 32 << 10
