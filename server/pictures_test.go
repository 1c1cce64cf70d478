package server_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server"
	"github.com/tuskqueue/tusk/server/fixture"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// busy is a store with an hour of statistics.
type busy struct{ *memory.Store }

func (b busy) Stats(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
	stats, err := b.Store.Stats(ctx, f)
	r := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // a picture
	for i := range 59 {
		s := store.Stat{At: time.Now().UTC().Truncate(time.Minute).Add(time.Duration(i-59) * time.Minute), Queue: "mail",
			Kind: "send_email"}
		s.Completed = 60 + int64(i) + r.Int64N(40)
		if s.Failed = r.Int64N(4); i > 38 && i < 46 {
			s.Failed += 18 + r.Int64N(9)
		}
		for range s.Completed {
			s.Waited.Add(time.Duration(r.Int64N(20)) * time.Millisecond)
			s.Ran.Add(time.Duration(r.Int64N(180)) * time.Millisecond)
		}
		if f.Bucket == time.Minute && !s.At.Before(f.From) {
			stats = append(stats, s)
		}
	}
	return stats, err
}

// TestPictures makes the pictures of the documentation:
//
//	TUSK_PICTURES=$PWD/docs/images go test -run Pictures ./server
func TestPictures(t *testing.T) {
	dir := os.Getenv("TUSK_PICTURES")
	if dir == "" {
		t.Skip("makes the pictures of the documentation: set TUSK_PICTURES")
	}
	client, err := tusk.NewClient(busy{memory.New()}, &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f, stop, err := fixture.Fill(t.Context(), client, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	s := startOn(t, client, func(c *server.Config) { c.Dev = true; c.Environment = "staging" })
	b := openBrowser(t, s.URL)
	for _, theme := range []string{"light", "dark"} {
		b.as(1280, theme)
		for name, path := range map[string]string{"overview": "/", "tasks": "/tasks",
			"task": "/tasks/" + f.Retryable.String(), "errors": "/errors", "workflow": "/workflows/" + f.Workflow.String()} {
			b.open(path)
			var png []byte
			b.run(chromedp.Sleep(700*time.Millisecond), chromedp.ActionFunc(func(ctx context.Context) (err error) {
				png, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).Do(ctx)
				return err
			}))
			if err := os.WriteFile(filepath.Join(dir, name+"-"+theme+".png"), png, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if dir = os.Getenv("TUSK_PICTURES_PHONE"); dir == "" {
		return
	}
	b.as(390, "light")
	for name, path := range map[string]string{"overview": "/", "tasks": "/tasks", "task": "/tasks/" + f.Retryable.String(),
		"errors": "/errors", "schedule": "/schedules/morning-report"} {
		b.open(path)
		var png []byte
		b.run(chromedp.Sleep(700*time.Millisecond), chromedp.CaptureScreenshot(&png))
		if err := os.WriteFile(filepath.Join(dir, name+"-phone.png"), png, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
