package tusk

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/tuskqueue/tusk/store"
)

// Client enqueues, inspects and edits tasks. It is safe for use by many
// goroutines, and needs no closing: the store it was given does.
type Client struct {
	store     store.Store
	config    ClientConfig
	limits    limitCache
	pipelines pipelineCache
	lying     lying
}

// ClientConfig configures a client. The zero value will do.
type ClientConfig struct {
	// MaxArgsBytes is the most that the JSON of a task's args may take in the database.
	// Default: 256 KiB; at most 16 MiB. Larger ones go to Payloads, or are refused without.
	MaxArgsBytes int
	// Payloads takes args larger than MaxArgsBytes and outputs larger than MaxOutputBytes, up
	// to MaxPayloadBytes; see archive.NewPayloads. Default: none. Clients that enqueue and
	// workers that run the same tasks need the same.
	Payloads Payloads
	// BeforeEnqueue are called in order with every batch of checked tasks, which
	// they may change, before it is stored. An error stops the enqueue.
	BeforeEnqueue []func(ctx context.Context, tasks []store.NewTask) error
	// KeyRing encrypts the args of tasks at rest. Default: none. Clients that
	// enqueue and workers that run the same tasks need the same keys. The args of
	// schedules, which are settings, are not encrypted.
	KeyRing *KeyRing
	// Logger takes what a client or its workers have to say. Default: slog.Default().
	Logger *slog.Logger
}

// NewClient makes a client of an engine. Config may be nil.
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
	return &Client{store: s, config: c}, nil
}

// KeyRing returns the key ring of the client's configuration; nil: none.
func (c *Client) KeyRing() *KeyRing { return c.config.KeyRing }

// Store returns the engine that the client was made with.
func (c *Client) Store() store.Store { return c.store }

// inTx finds the engine's view of the caller's transaction.
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
