package names_test

import (
	"errors"
	"sync/atomic"
	"testing"

	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/kubernetes/names"
	"github.com/trapeze-nic/trapeze/via"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func open(t *testing.T, c kubernetes.Interface) via.NameService {
	t.Helper()
	return must.Get(names.New(names.Options{Client: c, Namespace: "default", PodName: "p", PodUID: "u"}))(t)
}

func TestNames(t *testing.T) {
	conform.NameService(t, func(t *testing.T) conform.NameServiceEnds {
		api := fake.NewClientset()
		// The other client has the same objects, and its own way to them.
		cut, away := &fake.Clientset{}, &atomic.Bool{}
		cut.AddReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if away.Load() {
				return true, nil, errors.New("the API server is away")
			}
			o, err := api.Invokes(a, nil)
			return true, o, err
		})
		return conform.NameServiceEnds{One: open(t, cut), Other: open(t, api), Cut: func() { away.Store(true) }}
	})
}

// onlySlice is the one that a name has.
func onlySlice(t *testing.T, api kubernetes.Interface, name string) *discovery.EndpointSlice {
	t.Helper()
	list, err := api.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{LabelSelector: discovery.LabelServiceName + "=" + name})
	must.Hold(t, err == nil && len(list.Items) == 1, "%+v %+v", list, err)
	return &list.Items[0]
}

// TestNonsense: entries of others that make no sense are left out.
func TestNonsense(t *testing.T) {
	api := fake.NewClientset()
	s := open(t, api)
	a := via.Address{MAC: via.MAC{2, 0, 0, 0, 0, 1}}
	for _, name := range []string{"cache", "other"} {
		p := must.Get(s.Publish(t.Context(), name, a, via.LeastLease))(t)
		defer p.Withdraw()
	}
	e := onlySlice(t, api, "other")
	for key := range e.Annotations {
		e.Annotations[key] = "ff:ff:ff:ff:ff:ff/x"
	}
	must.Get(api.DiscoveryV1().EndpointSlices("default").Update(t.Context(), e, metav1.UpdateOptions{}))(t)
	if got, err := s.Resolve(t.Context(), "other"); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	for _, name := range []string{"Cache", "a.b", "a,b=c", "x=y"} {
		if got, err := s.Resolve(t.Context(), name); err != nil || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if p, err := s.Publish(t.Context(), name, a, via.LeastLease); p != nil || !errors.Is(err, via.ErrInvalidParameter) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	if s, err := names.New(names.Options{}); s != nil || !errors.Is(err, via.ErrInvalidParameter) {
		t.Error(s, err)
	}
}
