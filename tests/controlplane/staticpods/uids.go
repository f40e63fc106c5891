package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/kubelet/config"
)

const (
	nodeName = "node1"
	// directory is relative, so that the UIDs do not depend on where the program runs.
	directory = "manifests"
	// address is never looked up: the transport answers itself.
	address = "http://manifests.example/pod.yaml"
	// patience is the time for a source to report its pods.
	patience = 30 * time.Second
)

// uidsOf has the kubelet's sources read all manifests, and lists each pod with its UID as the pod of a
// file and as that of a URL.
func uidsOf(ctx context.Context, path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	documents := bytes.Split(text, []byte("\n---\n"))
	scratch, err := os.MkdirTemp("", "staticpods")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	if err := os.Chdir(scratch); err != nil {
		return "", err
	}
	if err := os.Mkdir(directory, 0o755); err != nil {
		return "", err
	}
	for i, document := range documents {
		if err := os.WriteFile(manifestPath(i), document, 0o644); err != nil {
			return "", err
		}
	}
	files, err := podsOf(ctx, "file", func(pods *podConfig) {
		updates := pods.Channel(ctx, "file")
		config.NewSourceFile(klog.Background(), directory, nodeName, time.Hour, updates)
	})
	if err != nil {
		return "", err
	}
	if len(files) != len(documents) {
		// Its log names the others.
		return "", fmt.Errorf("the kubelet accepts %d of %d manifests", len(files), len(documents))
	}
	var lines []string
	for name, uid := range files {
		lines = append(lines, name+" "+string(uid))
	}
	for i, document := range documents {
		http.DefaultTransport = answer(document)
		pods, err := podsOf(ctx, "http", func(pods *podConfig) {
			updates := pods.Channel(ctx, "http")
			config.NewSourceURL(klog.Background(), address, http.Header{}, nodeName, time.Hour, updates)
		})
		if err != nil {
			return "", fmt.Errorf("document %d: %w", i, err)
		}
		for name, uid := range pods {
			lines = append(lines, name+" url "+string(uid))
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n") + "\n", nil
}

func manifestPath(i int) string {
	return filepath.Join(directory, fmt.Sprintf("%03d.yaml", i))
}

type podConfig = config.PodConfig

// podsOf returns the UIDs of the pods in the first update of a source.
func podsOf(ctx context.Context, source string, start func(*podConfig)) (map[string]types.UID, error) {
	recorder := record.NewBroadcaster().NewRecorder(legacyscheme.Scheme, v1.EventSource{})
	pods := config.NewPodConfig(recorder, observer{})
	start(pods)
	select {
	case update := <-pods.Updates():
		found := map[string]types.UID{}
		for _, pod := range update.Pods {
			found[pod.Name] = pod.UID
		}
		return found, nil
	case <-time.After(patience):
		return nil, errors.New("no pods from the source " + source)
	}
}

// answer is an HTTP transport with one response to all requests.
type answer []byte

func (a answer) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{
		Status:     "200 OK",
		StatusCode: http.StatusOK,
		Body:       io.NopCloser(bytes.NewReader(a)),
		Request:    request,
	}, nil
}

type observer struct{}

func (observer) ObservedPodOnWatch(*v1.Pod, time.Time) {}
