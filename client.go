package tusk

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/tuskqueue/tusk/internal/gate"
	"github.com/tuskqueue/tusk/store"
)

// Client enqueues, inspects and edits tasks. It is safe for concurrent use and needs no closing; close its store
// instead.
type Client struct {
	store     store.Store
	config    ClientConfig
	limits    limitCache
	pipelines pipelineCache
	endedRuns endedRuns
	lying     lying
	ends      ends
}

// ClientConfig configures a client. The zero value is valid and means all defaults.
type ClientConfig struct {
	// MaxArgsBytes is the maximum size of a task's args, as JSON, in the database. Default: 256 KiB; at most 16
	// MiB. Larger args go to Payloads, or are refused without it.
	MaxArgsBytes int
	// Payloads stores args larger than MaxArgsBytes and outputs larger than MaxOutputBytes, up to MaxPayloadBytes;
	// see archive.NewPayloads. Optional. Clients that enqueue tasks and workers that run them need the same
	// Payloads.
	Payloads Payloads
	// BeforeEnqueue hooks are called in order with every batch of validated tasks before it is stored: also with the
	// children that a handler spawns, the next stage of a pipeline, and the tasks of RunSchedule and
	// BackfillSchedule. They are not called for the ticks that the leader fires, nor for tasks that run again. A hook
	// may change the tasks. An error stops the enqueue; that of a next stage fails the attempt.
	BeforeEnqueue []func(ctx context.Context, tasks []store.NewTask) error
	// KeyRing encrypts the args of tasks at rest. Optional. Clients that enqueue tasks and workers that run them
	// need the same keys. The args of schedules are settings and are not encrypted.
	KeyRing *KeyRing
	// Logger receives the log messages of the client and its workers. Default: slog.Default().
	Logger *slog.Logger
}

// NewClient creates a client for an engine. config may be nil.
func NewClient(s store.Store, config *ClientConfig) (*Client, error) {
	if s == nil {
		return nil, invalid("store", "missing", "is nil: open an engine first, such as store/sqlite or store/memory")
	}
	var c ClientConfig
	if config != nil {
		c = *config
	}
	if c.MaxArgsBytes == 0 {
		c.MaxArgsBytes = MaxArgsBytes
	}
	if c.MaxArgsBytes < 0 || c.MaxArgsBytes > hardMaxArgsBytes {
		return nil, invalid("MaxArgsBytes", "out_of_range", "is %d, want 1 to %d", c.MaxArgsBytes, hardMaxArgsBytes)
	}
	if err := c.KeyRing.validate(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Client{store: s, config: c, limits: limitCache{reading: gate.New()},
		pipelines: pipelineCache{reading: gate.New()}}, nil
}

// KeyRing returns the configured key ring, or nil.
func (c *Client) KeyRing() *KeyRing { return c.config.KeyRing }

// Store returns the engine that the client was created with.
func (c *Client) Store() store.Store { return c.store }

// inTx returns the engine's view of the caller's transaction.
func (c *Client) inTx(tx any) (store.Tx, error) {
	if tx == nil {
		return nil, invalid("tx", "missing", "is nil")
	}
	engine, ok := store.As[store.Transactor](c.store)
	if !ok {
		return nil, fmt.Errorf("transaction: %w: enqueue without one, with a key", ErrUnsupported)
	}
	return engine.Tx(tx)
}
