package command

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/trapeze-nic/trapeze/internal/option"
)

// Listen opens the address of this host that a flag names, HOST:PORT. What is no such address is an
// option.Error; that the host or the port cannot be had is not.
func Listen(ctx context.Context, flag, address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return nil, &option.Error{Option: flag, Value: address, Allowed: "HOST:PORT, as in 127.0.0.1:8080"}
	}
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		err = fmt.Errorf("%s: %w: give another address or port", flag, err)
	}
	return l, err
}

// OwnHost has a server refuse requests whose Host is not one by which a browser reaches it knowingly:
// localhost, name if that is not empty, or the IP address that the browser has connected to. A page of
// others whose name leads here (DNS rebinding) has another one. The port may be another, as behind
// ssh -L.
func OwnHost(name string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		ip := net.ParseIP(host)
		if strings.EqualFold(host, "localhost") || name != "" && strings.EqualFold(host, name) ||
			ok && ip != nil && (ip.Equal(at.IP) || ip.IsLoopback() && at.IP.IsLoopback()) {
			h.ServeHTTP(w, r)
			return
		}
		http.Error(w, "this host name is not one of the server: ask for its IP address, for localhost, or for the address that it has printed", http.StatusMisdirectedRequest)
	})
}

// BoundConnections bounds the connections of a server. A new one takes the place of the one that waits longest for a request;
// if none waits, it is closed. So idle connections shut no browser out.
func BoundConnections(s *http.Server, most int) {
	var mu sync.Mutex
	var open int
	var waiting []net.Conn // oldest first
	s.ConnState = func(c net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		waiting = slices.DeleteFunc(waiting, func(w net.Conn) bool { return w == c })
		switch state {
		case http.StateNew, http.StateIdle:
			if waiting = append(waiting, c); state == http.StateIdle {
				break
			}
			if open++; open > most {
				_ = waiting[0].Close() // the server hears of its end, and counts it
				waiting = waiting[1:]
			}
		case http.StateClosed, http.StateHijacked:
			open--
		}
	}
}
