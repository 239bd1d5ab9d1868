package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Asker answers commands: a Client, or Local.
type Asker interface {
	// Ask sends a command such as "/ethdev/info,0" and decodes the answer into what a pointer
	// leads to. It fails with ErrNoAnswer.
	Ask(ctx context.Context, command string, into any) error
}

// Local asks this process, without a socket.
type Local struct{}

func (Local) Ask(ctx context.Context, command string, into any) error {
	name, parameters, _ := strings.Cut(command, ",")
	value := process.value(ctx, name, parameters, greeting{})
	if loan, ok := value.(*Loan); ok { // there is no connection that would end it
		loan.End()
		value = nil
	}
	if value == nil {
		return fmt.Errorf("%s: %w", command, ErrNoAnswer)
	}
	if v, to := reflect.ValueOf(value), reflect.ValueOf(into).Elem(); v.Type().AssignableTo(to.Type()) {
		to.Set(v)
		return nil
	}
	return json.Unmarshal(encode(value), into)
}

// Endpoints asks for all endpoints of a port, part by part; none of a port without.
func Endpoints(ctx context.Context, a Asker, port int) ([]Endpoint, error) {
	return pages[Endpoint](ctx, a, "vis", port)
}

// Counted asks for the counts of all endpoints of a port, part by part.
func Counted(ctx context.Context, a Asker, port int) ([]EndpointCounts, error) {
	return pages[EndpointCounts](ctx, a, "counts", port)
}

func pages[R any](ctx context.Context, a Asker, command string, port int) (list []R, err error) {
	list = []R{} // and not null in JSON
	for from := uint64(0); ; {
		var p Page[R]
		switch err := a.Ask(ctx, fmt.Sprintf("%s%s,%d,%d", ours, command, port, from), &p); {
		case errors.Is(err, ErrNoAnswer): // not each source has endpoints
			return list, nil
		case err != nil:
			return nil, err
		}
		list = append(list, p.Rows...)
		if p.Next == nil || *p.Next <= from {
			return list, nil
		}
		from = *p.Next
	}
}
