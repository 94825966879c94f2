package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// open returns where the catalog is. If no address is given it starts one, which
// release ends.
func open(ctx context.Context, address string) (base *url.URL, release func() error, err error) {
	if address != "" {
		base, err = url.Parse(address)
		if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
			return nil, nil, fmt.Errorf("--catalog %q: give a URL that begins with https:// or http://", address)
		}
		return base, nil, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("starting the catalog: %w", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(products), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // it returns when it is closed
	return &url.URL{Scheme: "http", Host: listener.Addr().String(), Path: "/"}, server.Close, nil
}

// products is the handler of the catalog. It hangs when it is asked for HNG-01.
func products(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/KET-01":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Product{"KET-01", "pour-over kettle", "89.00 EUR"}) // a client that has gone needs none
	case "/HNG-01":
		<-r.Context().Done()
	default:
		http.NotFound(w, r)
	}
}
