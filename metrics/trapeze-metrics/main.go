// Command trapeze-metrics serves what the NICs of this host count to Prometheus.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/trapeze-nic/trapeze/metrics"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "trapeze-metrics: %v\n", err)
		stop()
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("trapeze-metrics", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:9840", "address to serve /metrics at")
	vis := flags.Bool("vis", false, "the queues of each VI too")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("argument %q is not known", flags.Arg(0))
	}
	handler, err := metrics.Handler(metrics.Host(metrics.Options{VIs: *vis}))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", handler)
	const patience = 10 * time.Second
	server := &http.Server{Handler: mux, ReadTimeout: patience, WriteTimeout: 2 * patience, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14}
	slog.Info("serving", "url", "http://"+l.Addr().String()+"/metrics")
	ended := context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = server.Shutdown(last) // what is not done by then is cut off when the process ends
	})
	defer ended()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
