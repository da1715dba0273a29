// Package suite_test is the Gateway API Inference Extension's conformance suite, as its TestConformance runs it. Two
// flags are ours, for a control that must fail: other manifests than the suite's, and less patience with answers.
package suite_test

import (
	"flag"
	"io/fs"
	"os"
	"testing"

	"sigs.k8s.io/gateway-api-inference-extension/conformance"
)

var (
	manifests = flag.String("manifests", "", "Directory with manifests to apply instead of the suite's own")
	patience  = flag.Duration("patience", 0, "How long answers may differ from what a test wants (0: the suite's own)")
)

func TestConformance(t *testing.T) {
	options := conformance.DefaultOptions(t)
	if *manifests != "" {
		options.ManifestFS = []fs.FS{os.DirFS(*manifests)}
	}
	if *patience > 0 {
		options.TimeoutConfig.MaxTimeToConsistency = *patience
	}
	conformance.RunConformanceWithOptions(t, options)
}
