package command

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

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
