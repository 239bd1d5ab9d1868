package command

import (
	"net"
	"net/http"
	"strings"
)

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
