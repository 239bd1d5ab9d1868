package driver_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestPartlyMapped: doorbells reach the device wherever they can be mapped, and
// where they cannot.
func TestPartlyMapped(t *testing.T) {
	const page = datasheet.PageSize
	for name, c := range map[string]struct {
		sparse []vfio.Area
		mapped func(offset, size uint64) ([]byte, error)
	}{
		"first pages":           {[]vfio.Area{{Offset: 0, Size: 2 * page}}, nil},
		"last pages":            {[]vfio.Area{{Offset: 2 * page, Size: 22 * page}}, nil},
		"two parts":             {[]vfio.Area{{Offset: 0, Size: page}, {Offset: 2 * page, Size: page}}, nil},
		"outside the region":    {[]vfio.Area{{Offset: 1 << 40, Size: page}, {Offset: page, Size: 1 << 40}, {Offset: ^uint64(page - 1), Size: 2 * page}}, nil},
		"not whole pages":       {[]vfio.Area{{Offset: 10, Size: page}, {Offset: page, Size: 10}}, nil},
		"cannot be mapped":      {nil, func(uint64, uint64) ([]byte, error) { return nil, vfio.ErrNotMappable }},
		"no memory for mapping": {nil, func(uint64, uint64) ([]byte, error) { return nil, errors.New("out of memory") }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(d *fakeDevice) { d.mapBAR2, d.sparse, d.mapped = true, c.sparse, c.mapped }, 8, 0)
			other, err := r.n.CreateVI(contextFor(t), r.v.Attributes(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			ds := r.descriptors(t, 2)
			for i, v := range []*driver.VI{r.v, other} {
				if err := v.PostSend(ds[i]); err != nil {
					t.Fatal(err)
				}
				if got := r.d.doorbell(datasheet.EndpointPage(v.Number()) + datasheet.DoorbellSend); got != 1 {
					t.Errorf("VI %d: doorbell %d", v.Number(), got)
				}
			}
		})
	}
}

// TestShortMapping: a back end that maps less than it was asked for is refused
// before anything is written there.
func TestShortMapping(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	d.mapBAR2 = true
	d.mapped = func(_, size uint64) ([]byte, error) { return make([]byte, size-1), nil }
	if _, err := driver.New(contextFor(t), d, driver.Options{Logger: quiet}); !errors.Is(err, driver.ErrProtocol) {
		t.Error(err)
	}
}
