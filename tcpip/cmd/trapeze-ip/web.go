package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/tcpip"
)

// served serves HTTP until ctx ends.
func served(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func serveCommand(o *options) *cobra.Command {
	var listen string
	c := &cobra.Command{Use: "serve FOLDER", Short: "Serve a folder by HTTP", Args: cobra.ExactArgs(1),
		Example: "  trapeze-ip serve --device afxdp:eth0 --address 10.0.0.2/24 ./public",
		RunE: func(cmd *cobra.Command, args []string) error {
			if info, err := os.Stat(args[0]); err != nil {
				return err
			} else if !info.IsDir() {
				return fmt.Errorf("%s is no folder", args[0])
			}
			return o.with(cmd.Context(), func(n network) error {
				l, err := n.Listen("tcp", listen)
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "serving %s at http://%s/\n", args[0], l.Addr())
				return served(cmd.Context(), l, http.FileServer(http.Dir(args[0])))
			})
		}}
	c.Flags().StringVar(&listen, "listen", ":80", "address and port to listen at")
	return c
}

func getCommand(o *options) *cobra.Command {
	return &cobra.Command{Use: "get URL", Short: "Fetch a page by HTTP to stdout", Args: cobra.ExactArgs(1),
		Example: "  trapeze-ip get --device afxdp:eth0 --address 10.0.0.2/24 http://10.0.0.1/ > page.html",
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, args[0], nil)
			if err != nil {
				return err
			}
			return o.with(cmd.Context(), func(n network) error {
				client := &http.Client{Transport: &http.Transport{DialContext: n.DialContext}}
				defer client.CloseIdleConnections()
				answer, err := client.Do(request)
				if err != nil {
					return err
				}
				defer answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					return fmt.Errorf("%s: %s", args[0], answer.Status)
				}
				_, err = io.Copy(cmd.OutOrStdout(), answer.Body)
				return err
			})
		}}
}

func forwardCommand(o *options) *cobra.Command {
	var back bool
	c := &cobra.Command{Use: "forward FROM TO", Short: "Forward a port of the NIC to one of this host, or back", Args: cobra.ExactArgs(2),
		Example: `  trapeze-ip forward --device afxdp:eth0 --address 10.0.0.2/24 :8080 127.0.0.1:80
  trapeze-ip forward --device afxdp:eth0 --address 10.0.0.2/24 --back 127.0.0.1:8080 10.0.0.1:80`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withStack(cmd.Context(), func(s *tcpip.Stack) error {
				var from, to network = s, &kernel{}
				if back {
					from, to = to, from
				}
				l, err := from.Listen("tcp", args[0])
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "forwarding %s to %s\n", l.Addr(), args[1])
				return forward(cmd.Context(), l, func(ctx context.Context) (net.Conn, error) { return to.DialContext(ctx, "tcp", args[1]) })
			})
		}}
	c.Flags().BoolVar(&back, "back", false, "FROM is a port of this host, TO one behind the NIC")
	return c
}

// forward carries connections on until ctx ends.
func forward(ctx context.Context, l net.Listener, dial func(context.Context) (net.Conn, error)) error {
	return accept(ctx, l, func(near net.Conn) {
		far, err := dial(ctx)
		if err != nil {
			fmt.Fprintln(os.Stderr, "trapeze-ip:", err)
			return
		}
		defer far.Close()
		defer context.AfterFunc(ctx, func() { _ = far.Close() })()
		var back sync.WaitGroup
		back.Go(func() { carry(near, far) })
		carry(far, near)
		back.Wait()
	})
}

// carry copies one way, and tells the end of it.
func carry(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	if c, ok := to.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}
