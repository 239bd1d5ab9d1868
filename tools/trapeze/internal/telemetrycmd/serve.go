package telemetrycmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/exposition"
)

// metricsReport is printed by serve-metrics --json once it serves.
type metricsReport struct {
	URL string `json:"url" help:"what Prometheus is to scrape"`
}

type metricsFlags struct {
	Listen string `flag:"listen" default:"127.0.0.1:9840" help:"address to serve /metrics at"`
	VIs    bool   `flag:"vis" help:"the queues of each endpoint too, and their latencies where they are measured"`
}

func (x *commands) serveMetrics(ctx context.Context, f *metricsFlags, _ []string) error {
	l, err := command.Listen(ctx, "--listen", f.Listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", exposition.Handler(exposition.Families(driver.Stats{}, f.VIs),
		func(ctx context.Context) []*exposition.Target { return exposition.Host(ctx, f.VIs) }))
	const timeout = 10 * time.Second
	at := l.Addr().(*net.TCPAddr)
	h := http.Handler(mux)
	if at.IP.IsLoopback() { // else other hosts ask by names that only they know
		h = command.OwnHost("", mux)
	}
	server := &http.Server{Handler: h, ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14,
		ErrorLog: slog.NewLogLogger(command.Logger(ctx, command.Quiet).Handler(), slog.LevelWarn)}
	shown := at.String()
	if name, err := os.Hostname(); err == nil && at.IP.IsUnspecified() {
		shown = net.JoinHostPort(name, fmt.Sprint(at.Port))
	}
	r := metricsReport{"http://" + shown + "/metrics"}
	if err := x.Printf(r, "metrics are at %s\n", r.URL); err != nil {
		return errors.Join(err, l.Close())
	}
	return serveHTTP(ctx, server, l)
}

// maxConnections bounds the connections of all browsers, or of those who scrape.
const maxConnections = 128

// serveHTTP serves until ctx ends, and returns when all that it has started has ended.
func serveHTTP(ctx context.Context, server *http.Server, l net.Listener) error {
	command.BoundConnections(server, maxConnections)
	ended := make(chan struct{})
	unlink := context.AfterFunc(ctx, func() {
		defer close(ended)
		// What is not done by then is cut off.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(last) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(l)
	if !unlink() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
