// Package compress compresses kept outcomes with Zstandard (RFC 8878).
//
// A sealed outcome cannot be compressed, so compress first: codecs {zstd, seal}. The length of a compressed outcome reveals
// something about its content. Do not compress if one body can contain both a secret and text of an attacker.
package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/go-idem/idem/core/driver"
)

// An encoded outcome is one of these:
//
//	mark | Zstandard frame, which has a single segment, and so contains its length, and a checksum
//	mark | stored | an outcome that itself begins with mark
const (
	mark   = 'z'
	stored = 0 // no frame begins with this byte
)

const (
	windowBytes   = 1 << 20 // the distance over which an encoder finds repetitions, and about the memory it takes
	maxDictionary = windowBytes
	minDictionary = 8
	maxMaxDecoded = 1 << 29            // the limit of the decoder
	minDecoder    = 1 << 10            // the decoder accepts no smaller limit
	dictionaryTag = "\x37\xa4\x30\xec" // the first bytes of a dictionary from zstd --train
)

// Option changes a codec. Pass options to Zstd.
type Option func(*options)

type options struct {
	threshold, level, maxDecoded int
	dictionaries                 []dictionary
}

// dictionary is one call of Dictionary.
type dictionary struct {
	id   uint32
	data []byte
}

// Threshold sets the length in bytes from which on outcomes are compressed. Default 1024, or 128 with a dictionary. With
// math.MaxInt the codec compresses nothing and only reads, as all processes should before one of them compresses.
func Threshold(n int) Option { return func(o *options) { o.threshold = n } }

// Level sets the effort, on the scale of zstd: from 1, the fastest, to 22, the smallest results. Default 3. A codec has up to
// four encoders. From its first use on each takes 1 to 4 MiB of memory, or 36 MiB from level 10 on.
func Level(n int) Option { return func(o *options) { o.level = n } }

// MaxDecoded bounds the length in bytes of a decoded outcome, and so the memory that a forged outcome can take. Longer
// outcomes are not compressed. A stored outcome that would be longer is unreadable. Default 16 MiB, at most 512 MiB.
func MaxDecoded(n int) Option { return func(o *options) { o.maxDecoded = n } }

// Dictionary adds text that outcomes have in common. With it short outcomes become much smaller. The option may be used
// several times: the first dictionary encodes, and all decode. To change it, put the new dictionary first, and keep the old
// one for the retention. All processes must have a dictionary before one of them encodes with it.
//
// data has 8 bytes to 1 MiB. It is a few typical responses one after another, the most typical one last, or the output of
// zstd --train --dictID=<id>. The id, above 0, is stored with each outcome. Never use it for other data.
func Dictionary(id uint32, data []byte) Option {
	return func(o *options) { o.dictionaries = append(o.dictionaries, dictionary{id, bytes.Clone(data)}) }
}

// Codec is a driver.Codec. It is safe for concurrent use, starts no goroutine and needs no Close.
type Codec struct {
	threshold, maxDecoded int
	encoder               *zstd.Encoder
	decoder               *zstd.Decoder
	scratch               sync.Pool // of *[]byte
}

// Zstd returns a codec. It returns an error that lists every option with a value out of bounds.
func Zstd(opts ...Option) (*Codec, error) {
	o := options{level: 3, maxDecoded: 16 << 20}
	for _, opt := range opts {
		opt(&o)
	}
	if o.threshold == 0 {
		o.threshold = 1024
		if len(o.dictionaries) > 0 {
			o.threshold = 128
		}
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Codec{threshold: o.threshold, maxDecoded: o.maxDecoded}
	c.scratch.New = func() any { return new([]byte) }
	var badEncoder, badDecoder error
	c.encoder, badEncoder = zstd.NewWriter(nil, o.encoder()...)
	c.decoder, badDecoder = zstd.NewReader(nil, o.decoder()...)
	if err := errors.Join(badEncoder, badDecoder); err != nil { // only a dictionary can be wrong after validate
		return nil, fmt.Errorf("idem: compress: Dictionary: %w", err)
	}
	return c, nil
}

// validate checks all options and returns one error for all that are wrong.
func (o *options) validate() error {
	var errs []error
	check := func(ok bool, option, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("idem: compress: "+option+": "+format, args...))
		}
	}
	check(o.threshold > 0, "Threshold", "%d: must be positive", o.threshold)
	check(o.level >= 1 && o.level <= 22, "Level", "%d: must be 1 to 22", o.level)
	check(o.maxDecoded > 0 && o.maxDecoded <= maxMaxDecoded, "MaxDecoded", "%d: must be 1 to %d", o.maxDecoded, maxMaxDecoded)
	seen := map[uint32]bool{}
	for _, d := range o.dictionaries {
		check(d.id > 0, "Dictionary", "id 0 stands for no dictionary; take another")
		check(!seen[d.id], "Dictionary", "id %d is given twice", d.id)
		check(len(d.data) >= minDictionary && len(d.data) <= maxDictionary, "Dictionary",
			"id %d: data has %d bytes, must have %d to %d", d.id, len(d.data), minDictionary, maxDictionary)
		check(!d.formatted() || d.ownID() == d.id, "Dictionary", "id %d: data says that its id is %d; use that one", d.id, d.ownID())
		seen[d.id] = true
	}
	return errors.Join(errs...)
}

// formatted reports whether data is the output of zstd --train, and not plain text.
func (d dictionary) formatted() bool { return bytes.HasPrefix(d.data, []byte(dictionaryTag)) }

// ownID returns the id in formatted data.
func (d dictionary) ownID() uint32 {
	var id [4]byte
	copy(id[:], d.data[min(len(dictionaryTag), len(d.data)):])
	return binary.LittleEndian.Uint32(id[:])
}

// encoder returns the options of the encoder. Only the first dictionary encodes.
func (o *options) encoder() []zstd.EOption {
	encoder := []zstd.EOption{
		zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(o.level)),
		zstd.WithEncoderConcurrency(min(4, runtime.GOMAXPROCS(0))), // each takes memory, and no call takes long
		zstd.WithWindowSize(windowBytes),
		zstd.WithLowerEncoderMem(true),
		zstd.WithSingleSegment(true),
	}
	if len(o.dictionaries) == 0 {
		return encoder
	}
	if first := o.dictionaries[0]; !first.formatted() {
		return append(encoder, zstd.WithEncoderDictRaw(first.id, first.data))
	}
	return append(encoder, zstd.WithEncoderDict(o.dictionaries[0].data))
}

// decoder returns the options of the decoder. All dictionaries decode.
func (o *options) decoder() []zstd.DOption {
	limit := uint64(max(o.maxDecoded, minDecoder))
	decoder := []zstd.DOption{zstd.WithDecoderMaxMemory(limit), zstd.WithDecoderMaxWindow(limit)}
	for _, d := range o.dictionaries {
		if d.formatted() {
			decoder = append(decoder, zstd.WithDecoderDicts(d.data))
			continue
		}
		decoder = append(decoder, zstd.WithDecoderDictRaw(d.id, d.data))
	}
	return decoder
}

// Encode implements driver.Codec. It returns outcome itself if that is shorter than the threshold, longer than MaxDecoded, or
// would not become smaller.
func (c *Codec) Encode(_ [32]byte, outcome []byte) []byte {
	if len(outcome) > 0 && outcome[0] == mark {
		return append([]byte{mark, stored}, outcome...)
	}
	if len(outcome) < c.threshold || len(outcome) > c.maxDecoded {
		return outcome
	}
	scratch := c.scratch.Get().(*[]byte)
	defer c.scratch.Put(scratch)
	*scratch = c.encoder.EncodeAll(outcome, append((*scratch)[:0], mark))
	if len(*scratch) >= len(outcome) {
		return outcome
	}
	return bytes.Clone(*scratch) // of exact size, because a store in memory keeps it for long
}

// Decode implements driver.Codec. It returns kept itself if that does not begin with 'z', and an error that wraps
// driver.ErrUnreadable for a frame that is damaged, too long, or needs a dictionary that the codec does not have.
func (c *Codec) Decode(_ [32]byte, kept []byte) ([]byte, error) {
	if len(kept) == 0 || kept[0] != mark {
		return kept, nil
	}
	if len(kept) > 1 && kept[1] == stored {
		return kept[2:], nil
	}
	var header zstd.Header
	if err := header.Decode(kept[1:]); err != nil {
		return nil, fmt.Errorf("%w: zstd header: %w", driver.ErrUnreadable, err)
	}
	if !header.HasFCS || header.FrameContentSize > uint64(c.maxDecoded) {
		return nil, fmt.Errorf("%w: zstd frame of unknown length, or of more than the %d bytes of MaxDecoded",
			driver.ErrUnreadable, c.maxDecoded)
	}
	outcome, err := c.decoder.DecodeAll(kept[1:], nil)
	if err != nil {
		return nil, fmt.Errorf("%w: zstd frame, dictionary %d: %w", driver.ErrUnreadable, header.DictionaryID, err)
	}
	if uint64(len(outcome)) != header.FrameContentSize {
		return nil, fmt.Errorf("%w: zstd frame is followed by something", driver.ErrUnreadable)
	}
	return outcome, nil
}
