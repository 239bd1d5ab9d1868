// Http serves a page with an unchanged net/http over a NIC, first by HTTP/1.1 and then by
// HTTP/2 with TLS. Both sides are in this process, on emulated NICs.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	_ "github.com/trapeze-nic/trapeze/emulator" // makes "emu:" known
	"github.com/trapeze-nic/trapeze/via"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	server, err := via.Open(ctx, "emu:?wire=mem:http", via.Options{})
	if err != nil {
		return err
	}
	client, err := via.Open(ctx, "emu:?wire=mem:http&mac=02:00:00:00:00:01", via.Options{})
	if err != nil {
		return errors.Join(err, server.Close())
	}
	err = fetch(ctx, out, client, server, false)
	if err == nil {
		err = fetch(ctx, out, client, server, true)
	}
	return errors.Join(err, client.Close(), server.Close())
}

// fetch gets a page from a server on one NIC by a client on the other.
func fetch(ctx context.Context, out io.Writer, client, server *via.NIC, secure bool) error {
	l, err := via.Listen(server, "http", via.ListenOptions{})
	if err != nil {
		return err
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s from %s", r.Proto, r.RemoteAddr)
	}))
	if err := s.Listener.Close(); err != nil { // of the kernel's TCP
		return err
	}
	s.Listener, s.EnableHTTP2 = l.Streams(), true
	t := &http.Transport{ForceAttemptHTTP2: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return via.DialStream(ctx, client, l.Address().String())
	}}
	scheme := "http"
	if secure {
		s.StartTLS()
		scheme, t.TLSClientConfig = "https", &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "example.com"}
		t.TLSClientConfig.RootCAs.AddCert(s.Certificate())
	} else {
		s.Start()
	}
	defer s.Close()
	defer t.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://nic/", nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: t}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err == nil {
		_, err = fmt.Fprintf(out, "%s: %s\n", response.Proto, page)
	}
	return err
}
