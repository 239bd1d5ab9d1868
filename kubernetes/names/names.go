// Package names publishes addresses of NICs in a Kubernetes namespace, and finds those of others:
// it is a via.NameService. Each entry is a Lease (coordination.k8s.io/v1), which its program
// renews, and an EndpointSlice (discovery.k8s.io/v1) with the label kubernetes.io/service-name,
// which goes with the Lease. The address is an annotation of the slice. kubectl shows both. Leases run out by the clocks of the nodes, which may
// differ by a second.
package names

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/trapeze-nic/trapeze/via"
)

const (
	manager = "trapeze-nic.github.io"
	// addressKey is the annotation with the address, as via.Address.String writes it.
	addressKey = "trapeze-nic.github.io/address"
	// termKey is the annotation with the term of a Lease.
	termKey = "trapeze-nic.github.io/term"
	// poll is between two looks of Watch at the leases: they run out without an event.
	poll = time.Second
	// skew is by how much the clocks of two nodes may differ.
	skew = time.Second
)

// Options say where names are.
type Options struct {
	Client    kubernetes.Interface
	Namespace string
	// PodName and PodUID, if they are set, have the garbage collector remove what this pod has
	// published when the pod is deleted.
	PodName, PodUID string
}

// New makes the service. It asks nothing of the API server, and fails with
// via.ErrInvalidParameter for options that are missing.
func New(o Options) (via.NameService, error) {
	if o.Client == nil || o.Namespace == "" {
		return nil, &via.Error{Op: "open names", Code: via.ErrInvalidParameter, Err: errors.New("the client or the namespace is missing")}
	}
	return &service{o}, nil
}

type service struct{ o Options }

// serviceName matches the names that Kubernetes takes for a service (RFC 1035, 2.3.1).
var serviceName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// objects is the name of the Lease and of the EndpointSlice of an entry.
func objects(name string, a via.Address) string {
	sum := sha256.Sum256([]byte(a.String()))
	return name + "-" + hex.EncodeToString(sum[:8])
}

func (s *service) Publish(ctx context.Context, name string, a via.Address, lease time.Duration) (*via.Publication, error) {
	const op = "publish name"
	if err := via.CheckPublication(name, a, lease); err != nil {
		return nil, err
	}
	if !serviceName.MatchString(name) {
		return nil, &via.Error{Op: op, Code: via.ErrInvalidParameter,
			Err: fmt.Errorf("name %q: Kubernetes takes at most 63 lower-case letters, digits and hyphens", name)}
	}
	began := time.Now()
	l, err := s.acquire(ctx, objects(name, a), lease)
	if err == nil {
		err = s.enter(ctx, name, a, l)
	}
	if err != nil {
		return nil, via.NameError(op, err)
	}
	term := termOf(l)
	holder := *l.Spec.HolderIdentity
	return via.KeepPublished(term, began, lease,
		func(ctx context.Context) error { return s.renew(ctx, l.Name, holder) },
		func(ctx context.Context) error { return s.release(ctx, l.Name, holder) }), nil
}

// acquire makes this program the holder of a lease, also of another's.
func (s *service) acquire(ctx context.Context, name string, lease time.Duration) (l *coordination.Lease, err error) {
	leases := s.o.Client.CoordinationV1().Leases(s.o.Namespace)
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		l, err = leases.Get(ctx, name, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return err
		}
		if missing {
			l = &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.o.Namespace, OwnerReferences: s.owner()}}
		}
		now := metav1.NowMicro()
		// The clock keeps terms rising after a lease has been deleted.
		term := max(uint64(now.UnixNano()), termOf(l)+1)
		l.Annotations = map[string]string{termKey: strconv.FormatUint(term, 10)}
		l.Spec = coordination.LeaseSpec{HolderIdentity: ptr.To(fmt.Sprintf("%s-%d", cmp.Or(s.o.PodName, "program"), term)), AcquireTime: &now, RenewTime: &now,
			LeaseDurationSeconds: ptr.To(seconds(lease)), LeaseTransitions: ptr.To(ptr.Deref(l.Spec.LeaseTransitions, 0) + 1)}
		if missing {
			l, err = leases.Create(ctx, l, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				err = apierrors.NewConflict(coordination.Resource("leases"), name, err)
			}
			return err
		}
		l, err = leases.Update(ctx, l, metav1.UpdateOptions{})
		return err
	})
	return l, err
}

// termOf is the term of a lease; 0 if it has none.
func termOf(l *coordination.Lease) uint64 {
	term, err := strconv.ParseUint(l.Annotations[termKey], 10, 63)
	if err != nil {
		return 0
	}
	return term
}

// seconds are whole ones, rounded up.
func seconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

func (s *service) owner() []metav1.OwnerReference {
	if s.o.PodName == "" || s.o.PodUID == "" {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: s.o.PodName, UID: types.UID(s.o.PodUID)}}
}

// enter makes the EndpointSlice of an entry, or replaces it. The slice has no endpoints: the address
// of a NIC is no IP address, and kube-proxy must not send packets of a Service with this name there.
func (s *service) enter(ctx context.Context, name string, a via.Address, l *coordination.Lease) error {
	slices := s.o.Client.DiscoveryV1().EndpointSlices(s.o.Namespace)
	e := &discovery.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: l.Name, Namespace: s.o.Namespace,
			Labels:          map[string]string{discovery.LabelServiceName: name, discovery.LabelManagedBy: manager},
			Annotations:     map[string]string{addressKey: a.String()},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Name: l.Name, UID: l.UID}}},
		AddressType: discovery.AddressTypeIPv6,
		Endpoints:   []discovery.Endpoint{},
	}
	retriable := func(err error) bool {
		return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
	}
	return retry.OnError(retry.DefaultRetry, retriable, func() error {
		e.ResourceVersion = ""
		_, err := slices.Create(ctx, e, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		old, err := slices.Get(ctx, l.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		e.ResourceVersion = old.ResourceVersion
		_, err = slices.Update(ctx, e, metav1.UpdateOptions{})
		return err
	})
}

func (s *service) renew(ctx context.Context, name, holder string) error {
	leases := s.o.Client.CoordinationV1().Leases(s.o.Namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		l, err := leases.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && ptr.Deref(l.Spec.HolderIdentity, "") != holder {
			return via.ErrLeaseLost
		}
		if err != nil {
			return err
		}
		now := metav1.NowMicro()
		l.Spec.RenewTime = &now
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
		return err
	})
}

// release removes an entry, unless another program holds it.
func (s *service) release(ctx context.Context, name, holder string) error {
	leases := s.o.Client.CoordinationV1().Leases(s.o.Namespace)
	l, err := leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && ptr.Deref(l.Spec.HolderIdentity, "") != holder {
		return nil
	}
	if err != nil {
		return err
	}
	// What has been taken over meanwhile has another version, and stays.
	only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}}
	if err := leases.Delete(ctx, name, only); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	err = s.o.Client.DiscoveryV1().EndpointSlices(s.o.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (s *service) Resolve(ctx context.Context, name string) ([]via.Address, error) {
	list, err := s.resolve(ctx, name)
	return list, via.NameError("resolve name", err)
}

func (s *service) resolve(ctx context.Context, name string) (found []via.Address, err error) {
	if !serviceName.MatchString(name) {
		return nil, nil // it cannot have been published
	}
	entries, err := s.o.Client.DiscoveryV1().EndpointSlices(s.o.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discovery.LabelServiceName + "=" + name + "," + discovery.LabelManagedBy + "=" + manager})
	if err != nil || len(entries.Items) == 0 {
		return nil, err
	}
	now := time.Now()
	for _, e := range entries.Items {
		l, err := s.o.Client.CoordinationV1().Leases(s.o.Namespace).Get(ctx, e.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !holds(l, now) {
			continue
		}
		// Another program may have written nonsense: the other entries are as good.
		if a, err := via.ParseAddress(e.Annotations[addressKey]); err == nil && via.CheckPublication(name, a, via.LeastLease) == nil {
			found = append(found, a)
		}
	}
	slices.SortFunc(found, func(a, b via.Address) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(found), nil
}

// holds says that a lease has not run out.
func holds(l *coordination.Lease, now time.Time) bool {
	r, d := l.Spec.RenewTime, l.Spec.LeaseDurationSeconds
	return r != nil && d != nil && now.Before(r.Add(time.Duration(*d)*time.Second+skew))
}

func (s *service) Watch(ctx context.Context, name string, changed func([]via.Address)) error {
	return via.PollNames(ctx, poll, func(ctx context.Context) ([]via.Address, error) { return s.resolve(ctx, name) }, changed)
}
