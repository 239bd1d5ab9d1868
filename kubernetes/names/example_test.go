package names_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/kubernetes/names"
	"github.com/trapeze-nic/trapeze/via"
)

// One program publishes where it listens, and another dials the name.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// In a pod: rest.InClusterConfig, kubernetes.NewForConfig, and the pod's own namespace.
	service, err := names.New(names.Options{Client: fake.NewClientset(), Namespace: "default"})
	if err != nil {
		log.Fatal(err)
	}
	server, err := via.Open(ctx, "emu:?wire=mem:names", via.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	listener, err := via.Listen(server, "blocks", via.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	published, err := service.Publish(ctx, "cache", via.Address{MAC: listener.Address().MAC}, 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer published.Withdraw()

	client, err := via.Open(ctx, "emu:?wire=mem:names", via.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	client.UseNames(service)
	out, err := via.Dial(ctx, client, "cache:blocks", via.ConnOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if err := out.Send(ctx, []byte("hello, name")); err != nil {
		log.Fatal(err)
	}
	in, err := listener.Accept(ctx)
	if err != nil {
		log.Fatal(err)
	}
	message, err := in.Receive(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("received: %s\n", message)
	// Output: received: hello, name
}
