// Command staticpods writes what a kubelet knows of static pods: the layout of the Go structures whose
// dump it hashes, and the UIDs that it gives to a set of manifests. Polylet computes the same UIDs from
// the layout, and its tests compare them. `cargo generate static-pods` runs it.
//
// It runs the kubelet's own sources of static pods (pkg/kubelet/config) on the manifests.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/kubernetes/pkg/capabilities"
)

func main() {
	manifests := flag.String("manifests", "", "file with one manifest per YAML document")
	types := flag.String("types", "", "file to write the layout of the Go structures to")
	uids := flag.String("uids", "", "file to write the UIDs of the manifests to")
	filled := flag.String("filled", "", "file to write filled pods with their hashes to")
	count := flag.Int("count", 2000, "number of pods that are filled")
	all := flag.Bool("all", false, "write all filled pods, not only those that set further fields")
	seed := flag.Uint64("seed", 1, "seed of the filled pods")
	dump := flag.Bool("dump", false, "write the dumps of the filled pods instead of their hashes")
	flag.Parse()
	// As the kubelet, before it reads manifests.
	capabilities.Setup(true, 0)
	err := write(*types, func() (string, error) { return layout() })
	if err == nil {
		err = write(*filled, func() (string, error) { return filledPods(*seed, *count, *all, *dump) })
	}
	if err == nil {
		err = write(*uids, func() (string, error) { return uidsOf(context.Background(), *manifests) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "staticpods:", err)
		os.Exit(1)
	}
}

// write makes the text and writes it, if a path is given.
func write(path string, text func() (string, error)) error {
	if path == "" {
		return nil
	}
	content, err := text()
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return os.WriteFile(path, []byte(content), 0o644)
}
