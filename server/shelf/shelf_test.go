package shelf

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestADatabaseThatDoesNotAnswerDelaysAStartByAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		began := time.Now()
		Reseal(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), "hooks", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %v", took)
		}
		if !strings.Contains(log.String(), "hooks: secrets are not encrypted") {
			t.Errorf("logged %q", log.String())
		}
	})
}
