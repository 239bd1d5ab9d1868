package telemetrycmd

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/internal/command"
)

// page is the one file of the page: HTML with its style and its script.
//
//go:embed web.html
var page string

const (
	// webTimeout bounds what a browser may take to send a request, and to read an answer.
	webTimeout = 10 * time.Second
	// webIdle bounds the life of a connection without requests.
	webIdle = time.Minute
	// webBuffer bounds what the kernel holds for a browser that does not read: a few events.
	webBuffer = 64 << 10
)

// site serves the page and its events.
type site struct {
	feed *feed
	// token must come with each request; empty for none.
	token string
	// name is the host that --listen names.
	name string
	// timeout bounds what a browser may take to read an event.
	timeout time.Duration
}

// serve serves until ctx ends, which ends streams, too.
func (s *site) serve(ctx context.Context, l net.Listener) error {
	return serveHTTP(ctx, &http.Server{
		Handler: s, ReadHeaderTimeout: webTimeout, WriteTimeout: webTimeout, IdleTimeout: webIdle, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(webBuffer) // else it is larger
			}
			return ctx
		},
		ErrorLog: log.New(io.Discard, "", 0), // it would tell of each browser that breaks off
	}, l)
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(webTimeout))
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer") // the address has the token
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	command.OwnHost(s.name, http.HandlerFunc(s.answer)).ServeHTTP(w, r)
}

// answer answers a request for a host name of the page.
func (s *site) answer(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	switch given := r.URL.Query().Get("token"); {
	case r.URL.Path != "/" && r.URL.Path != "/events":
		http.Error(w, "there is nothing here: the page is at /", http.StatusNotFound)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is only read", http.StatusMethodNotAllowed)
	case subtle.ConstantTimeCompare([]byte(given), []byte(s.token)) != 1 && s.token != "":
		http.Error(w, "the token is missing or wrong: use the address that 'trapeze web' has printed", http.StatusForbidden)
	case r.URL.Path == "/":
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", contentPolicy)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(page))
	case r.Method == http.MethodHead:
		h.Set("Content-Type", "text/event-stream")
	default:
		s.events(w, r)
	}
}

// contentPolicy lets the page run its own script and style, and ask nothing but this server.
var contentPolicy = "default-src 'none'; script-src " + hashOf("script") + "; style-src " + hashOf("style") +
	"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// hashOf names the text of the page's one element of a kind.
func hashOf(element string) string {
	_, rest, _ := strings.Cut(page, "<"+element+">")
	text, _, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// events sends what a browser shows, until it goes, does not read, or the server ends.
func (s *site) events(w http.ResponseWriter, r *http.Request) {
	v, err := s.feed.join(r.URL.Query().Get("nic"))
	if err != nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer s.feed.leave(v)
	w.Header().Set("Content-Type", "text/event-stream")
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{}) // the end of a stream is that of its connection
	for event := []byte("retry: 1000\n\n"); ; {
		if c.SetWriteDeadline(time.Now().Add(s.timeout)) != nil {
			return
		}
		if _, err := w.Write(event); err != nil || c.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case event = <-v.events:
		}
	}
}
