// Package helm tests the chart. Helm's own code lints it, and renders it with values that
// people set. Kubernetes must know every field of every object.
package helm

import (
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint/rules"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// kinds makes an empty object of each kind that the chart may contain.
var kinds = map[string]func() any{
	"apps/v1 Deployment":            func() any { return &appsv1.Deployment{} },
	"batch/v1 Job":                  func() any { return &batchv1.Job{} },
	"v1 Service":                    func() any { return &corev1.Service{} },
	"v1 ServiceAccount":             func() any { return &corev1.ServiceAccount{} },
	"networking.k8s.io/v1 Ingress":  func() any { return &networkingv1.Ingress{} },
	"policy/v1 PodDisruptionBudget": func() any { return &policyv1.PodDisruptionBudget{} },
	// Custom resources, which their operators define.
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return &map[string]any{} },
	"keda.sh/v1alpha1 ScaledObject":           func() any { return &map[string]any{} },
}

type object struct {
	kind, name string
	value      any
}

// render renders the chart with values given as YAML.
func render(t *testing.T, values string) []object {
	t.Helper()
	c := load(t)
	given := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	options := chartutil.ReleaseOptions{Name: "shop", Namespace: "work", IsInstall: true, Revision: 1}
	all, err := chartutil.ToRenderValues(c, given, options, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	var objects []object
	for file, text := range files {
		if !strings.HasSuffix(file, ".yaml") {
			continue
		}
		for _, document := range strings.Split("\n"+text, "\n---") {
			if strings.TrimSpace(document) != "" {
				objects = append(objects, decode(t, file, document))
			}
		}
	}
	return objects
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load("tusk")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// decode reads an object. It refuses fields that the object's kind does not have.
func decode(t *testing.T, file, document string) object {
	t.Helper()
	var head struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
	}
	if err := yaml.Unmarshal([]byte(document), &head); err != nil {
		t.Fatalf("%s: %v\n%s", file, err, document)
	}
	kind := head.APIVersion + " " + head.Kind
	empty := kinds[kind]
	if empty == nil {
		t.Fatalf("%s: %q is a kind that the test does not know", file, kind)
	}
	value := empty()
	if err := yaml.UnmarshalStrict([]byte(document), value); err != nil {
		t.Fatalf("%s: %s %s: %v\n%s", file, kind, head.Metadata.Name, err, document)
	}
	return object{head.Kind, head.Metadata.Name, value}
}

// find returns the object with a kind and a name.
func find[T any](t *testing.T, objects []object, name string) *T {
	t.Helper()
	for _, o := range objects {
		if value, ok := o.value.(*T); ok && o.name == name {
			return value
		}
	}
	t.Fatalf("there is no %T of the name %s among %v", *new(T), name, objects)
	return nil
}

func TestTheChartIsLinted(t *testing.T) {
	linter := support.Linter{ChartDir: "tusk"}
	rules.Chartfile(&linter)
	rules.Values(&linter)
	rules.Templates(&linter, map[string]any{}, "work", true)
	for _, m := range linter.Messages {
		if m.Severity > support.InfoSev {
			t.Errorf("%v", m)
		}
	}
}

func TestTheChartRendersWithEveryFeature(t *testing.T) {
	objects := render(t, `
serve: {hosts: [tusk.example.com, queue.example.com], args: [--environment=production]}
ingress: {enabled: true, className: nginx, tls: [{hosts: [tusk.example.com], secretName: tls}]}
work: {enabled: true, queues: [mail, images], exec: {resize: ./resize --fast}, shutdownTimeoutSeconds: 60}
serviceMonitor: {enabled: true, labels: {release: prometheus}, tokenSecret: {name: tusk-scrape}}
keda: {enabled: true}
imagePullSecrets: [{name: registry}]
podAnnotations: {a: b}
podLabels: {team: shop}
nodeSelector: {disk: ssd}
`)
	serve := find[appsv1.Deployment](t, objects, "shop-tusk").Spec.Template.Spec
	args := strings.Join(serve.Containers[0].Args, " ")
	for _, want := range []string{"serve", "--host=tusk.example.com", "--host=queue.example.com", "--https",
		"--environment=production"} {
		if !strings.Contains(args, want) {
			t.Errorf("serve is called with %s, want %s", args, want)
		}
	}
	env := serve.Containers[0].Env
	if !strings.Contains(args, "--host=$(POD_IP)") || env[len(env)-1].Name != "POD_IP" ||
		env[len(env)-1].ValueFrom.FieldRef.FieldPath != "status.podIP" {
		t.Errorf("Prometheus cannot scrape a pod by its address: %s, %v", args, env)
	}
	secret := serve.Containers[0].Env[0].ValueFrom.SecretKeyRef
	if secret.Name != "tusk-database" || secret.Key != "url" {
		t.Errorf("the database's URL comes from %+v", secret)
	}
	work := find[appsv1.Deployment](t, objects, "shop-tusk-work")
	pod := work.Spec.Template.Spec
	if args := strings.Join(pod.Containers[0].Args, " "); !strings.Contains(args, "--exec=resize=./resize --fast") ||
		!strings.Contains(args, "--shutdown-timeout=60s") {
		t.Errorf("work is called with %s", args)
	}
	if *pod.TerminationGracePeriodSeconds <= 60 {
		t.Errorf("a pod has %d s to stop, its tasks 60 s", *pod.TerminationGracePeriodSeconds)
	}
	if work.Spec.Replicas != nil {
		t.Error("the deployment sets its replicas although KEDA does")
	}
	if len(objects) != 10 {
		t.Errorf("%d objects: %v", len(objects), objects)
	}
}

func TestPodsHaveNoRightsThatTheyDoNotNeed(t *testing.T) {
	objects := render(t, `{work: {enabled: true}}`)
	var specs []corev1.PodSpec
	specs = append(specs, find[appsv1.Deployment](t, objects, "shop-tusk").Spec.Template.Spec,
		find[appsv1.Deployment](t, objects, "shop-tusk-work").Spec.Template.Spec,
		find[batchv1.Job](t, objects, "shop-tusk-migrate").Spec.Template.Spec)
	for _, spec := range specs {
		c := spec.Containers[0]
		own := c.SecurityContext
		if *spec.AutomountServiceAccountToken || !*spec.SecurityContext.RunAsNonRoot || *own.AllowPrivilegeEscalation ||
			!*own.ReadOnlyRootFilesystem || own.Capabilities.Drop[0] != "ALL" {
			t.Errorf("%s: %+v, %+v", c.Name, spec.SecurityContext, own)
		}
	}
}

func TestPodsHaveTheEnvironmentAndTheFolderThatAnArchiveNeeds(t *testing.T) {
	objects := render(t, `
extraEnv: [{name: TUSK_ARCHIVE, value: "s3://tasks"}]
envFrom: [{secretRef: {name: tusk-archive}}]
work: {enabled: true}
`)
	for name, spec := range map[string]corev1.PodSpec{
		"serve":   find[appsv1.Deployment](t, objects, "shop-tusk").Spec.Template.Spec,
		"work":    find[appsv1.Deployment](t, objects, "shop-tusk-work").Spec.Template.Spec,
		"migrate": find[batchv1.Job](t, objects, "shop-tusk-migrate").Spec.Template.Spec,
	} {
		c := spec.Containers[0]
		if len(c.Env) != 2 || c.Env[1].Name != "TUSK_ARCHIVE" || c.EnvFrom[0].SecretRef.Name != "tusk-archive" {
			t.Errorf("%s: %+v, %+v", name, c.Env, c.EnvFrom)
		}
		if len(spec.Volumes) != 1 || spec.Volumes[0].EmptyDir == nil || c.VolumeMounts[0].Name != spec.Volumes[0].Name ||
			c.VolumeMounts[0].MountPath != "/tmp" {
			t.Errorf("%s: %+v, %+v", name, spec.Volumes, c.VolumeMounts)
		}
	}
}

func TestTheProbesAskWhereTheServerListens(t *testing.T) {
	for values, want := range map[string]string{
		"{}": "http://127.0.0.1:8787",
		`serve: {args: [--prefix=/tusk], healthURL: "http://127.0.0.1:8787/tusk"}`: "http://127.0.0.1:8787/tusk",
	} {
		spec := find[appsv1.Deployment](t, render(t, values), "shop-tusk").Spec.Template.Spec
		c := spec.Containers[0]
		for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
			if command := strings.Join(probe.Exec.Command, " "); !strings.HasSuffix(command, " --url="+want) {
				t.Errorf("%s: %s", values, command)
			}
		}
		if !strings.Contains(strings.Join(c.Args, " "), " --drain=5s") || *spec.TerminationGracePeriodSeconds < 45 {
			t.Errorf("%s: a pod is called with %v, and has %d s to stop", values, c.Args, *spec.TerminationGracePeriodSeconds)
		}
	}
}

func TestAnImageThatDoesNotKnowDrainCanBeUsed(t *testing.T) {
	spec := find[appsv1.Deployment](t, render(t, "serve: {drainSeconds: 0}"), "shop-tusk").Spec.Template.Spec
	if args := strings.Join(spec.Containers[0].Args, " "); strings.Contains(args, "--drain") {
		t.Errorf("it is called with %q", args)
	}
}

func TestTheSchemaIsMigratedBeforeEachUpgrade(t *testing.T) {
	job := find[batchv1.Job](t, render(t, "{}"), "shop-tusk-migrate")
	if hook := job.Annotations["helm.sh/hook"]; hook != "pre-install,pre-upgrade" {
		t.Errorf("the hook is %q", hook)
	}
	if args := strings.Join(job.Spec.Template.Spec.Containers[0].Args, " "); args != "migrate up" {
		t.Errorf("it is called with %q", args)
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	for _, values := range []string{
		`{serve: {hosts: []}}`, `{database: {existingSecret: ""}}`, `{work: {queues: []}}`, `{work: {concurrency: 0}}`,
	} {
		given := map[string]any{}
		if err := yaml.Unmarshal([]byte(values), &given); err != nil {
			t.Fatal(err)
		}
		c := load(t)
		merged, err := chartutil.CoalesceValues(c, given)
		if err != nil {
			t.Fatal(err)
		}
		if err := chartutil.ValidateAgainstSchema(c, merged); err == nil {
			t.Errorf("%s was accepted", values)
		}
	}
}
