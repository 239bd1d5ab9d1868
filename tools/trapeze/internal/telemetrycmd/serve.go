package telemetrycmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/exposition"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
)

// metricsReport is printed by serve-metrics --json once it serves.
type metricsReport struct {
	URL string `json:"url" help:"what Prometheus is to scrape"`
}

type metricsFlags struct {
	listen string
	vis    bool
}

func (x *commands) serveMetrics() *cobra.Command {
	var f metricsFlags
	c := &cobra.Command{
		Use:   "serve-metrics",
		Short: "What the NICs of this host count, for Prometheus",
		Long: `Serve what the NICs count that processes of this host have open, in Prometheus' text
format, until it is interrupted. Each scrape asks those processes anew. They show
their NICs to their own user and to root.

` + keys.Of(metricsReport{}) + `
It prints it when it serves.`,
		Example: `  trapeze serve-metrics
  trapeze serve-metrics --listen 192.0.2.1:9840 --vis
  curl http://127.0.0.1:9840/metrics`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error { return x.runServeMetrics(ctx, &f) }),
	}
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:9840", "address to serve /metrics at")
	c.Flags().BoolVar(&f.vis, "vis", false, "the queues of each endpoint too, and their latencies where they are measured")
	return c
}

func (x *commands) runServeMetrics(ctx context.Context, f *metricsFlags) error {
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return &option.Error{Option: "--listen", Value: f.listen, Allowed: "HOST:PORT, as in 127.0.0.1:9840"}
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", exposition.Handler(exposition.Families(driver.Stats{}, f.vis),
		func(ctx context.Context) []*exposition.NIC { return exposition.Host(ctx, f.vis) }))
	const patience = 10 * time.Second
	server := &http.Server{Handler: mux, ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14,
		ErrorLog: slog.NewLogLogger(command.Logger(ctx, command.Quiet).Handler(), slog.LevelWarn)}
	r := metricsReport{"http://" + l.Addr().String() + "/metrics"}
	if err := x.Printf(r, "metrics are at %s\n", r.URL); err != nil {
		return errors.Join(err, l.Close())
	}
	defer context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = server.Shutdown(last) // what is not done by then is cut off when the process ends
	})()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
