package exposition

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	contentType = "text/plain; version=0.0.4; charset=utf-8"
	// timeout bounds a scrape, atOnce how many there are at a time.
	timeout, atOnce = 5 * time.Second, 4
	// scrapeTimeout is the header in which Prometheus says how long it waits.
	scrapeTimeout = "X-Prometheus-Scrape-Timeout-Seconds"
)

// within is the time for a scrape: four fifths of that for which Prometheus waits, so that what is
// late is marked and the others are shown.
func within(r *http.Request) time.Duration {
	if s, err := strconv.ParseFloat(r.Header.Get(scrapeTimeout), 64); err == nil && s > 0 && s < timeout.Seconds() {
		return time.Duration(s * 0.8 * float64(time.Second))
	}
	return timeout
}

// Handler serves the families to Prometheus. read finds the processes: Process or Host.
func Handler(families []*Family, read func(context.Context) []*Target) http.Handler {
	free := make(chan struct{}, atOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case free <- struct{}{}:
			defer func() { <-free }()
		default:
			http.Error(w, "too many scrapes at once", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), within(r))
		defer cancel()
		targets := read(ctx)
		w.Header().Set("Content-Type", contentType)
		_ = Write(w, families, targets) // who asked has left
	})
}

// escapedHelp and escapedLabel write texts as the format has them.
var (
	escapedHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapedLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// Write writes what the NICs of processes count as text, family by family. Its errors are those of w.
func Write(w io.Writer, families []*Family, targets []*Target) error {
	out := text{w: bufio.NewWriterSize(w, 1<<16)}
	for _, f := range families {
		begun := false
		emit := func(v Value) {
			if !begun {
				begun = true
				out.w.WriteString("# HELP " + f.Name + " " + escapedHelp.Replace(f.Help) + "\n# TYPE " + f.Name + " " + string(f.Type) + "\n")
			}
			if v.Latency == nil {
				out.line(f, "", v.Labels, "", v.Number)
				return
			}
			l := v.Latency
			out.line(f, "", v.Labels, "0.5", float64(l.P50)/1e9)
			out.line(f, "", v.Labels, "0.99", float64(l.P99)/1e9)
			out.line(f, "_sum", v.Labels, "", float64(l.SumNS)/1e9)
			out.line(f, "_count", v.Labels, "", float64(l.Samples))
		}
		for _, t := range targets {
			f.Each(t, emit)
		}
	}
	return out.w.Flush() // it keeps the first error
}

// text writes lines.
type text struct {
	w      *bufio.Writer
	buffer []byte
}

// line writes a value, with the label quantile if that is not empty.
func (t *text) line(f *Family, suffix string, labels []string, quantile string, v float64) {
	b := append(append(t.buffer[:0], f.Name...), suffix...)
	b = append(b, '{')
	label := func(name, value string) {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(b, name...), `="`...)
		b = append(append(b, escapedLabel.Replace(value)...), '"')
	}
	for i, name := range f.Labels {
		label(name, labels[i])
	}
	if quantile != "" {
		label("quantile", quantile)
	}
	b = append(b, "} "...)
	b = strconv.AppendFloat(b, v, 'g', -1, 64)
	t.buffer = append(b, '\n')
	_, _ = t.w.Write(t.buffer) // Flush says it
}
