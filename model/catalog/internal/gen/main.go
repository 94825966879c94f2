// Command gen writes the data of package catalog from Charm's catwalk, whose
// version go.mod names. It is a module of its own so that catwalk is not a
// requirement of programs.
//
//	go generate ./model/catalog
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"

	"charm.land/catwalk/pkg/embedded"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen <file>")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// write writes the data file. The same version of catwalk gives the same
// content, and with the same version of Go the same bytes.
func write(path string) error {
	entries, err := convert(embedded.GetAll(), added...)
	if err != nil {
		return err
	}
	data, err := json.Marshal(entries)
	if err != nil {
		return fmt.Errorf("encoding the models: %w", err)
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(data); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
