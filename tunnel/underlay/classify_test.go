package underlay

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func TestClassify(t *testing.T) {
	stun := func(typ uint16, length int, extra int) []byte {
		b := make([]byte, stunHeaderSize+length+extra)
		binary.BigEndian.PutUint16(b, typ)
		binary.BigEndian.PutUint16(b[2:], uint16(length))
		binary.BigEndian.PutUint32(b[4:], stunMagicCookie)
		return b
	}
	wg := func(typ byte, size int) []byte {
		b := make([]byte, size)
		b[0] = typ
		return b
	}
	indexLikeCookie := data(0, 32)
	binary.BigEndian.PutUint32(indexLikeCookie[4:], stunMagicCookie)
	for name, test := range map[string]struct {
		in   []byte
		want Class
	}{
		"initiation":                     {wg(1, 148), WireGuard},
		"response":                       {wg(2, 92), WireGuard},
		"cookie reply":                   {wg(3, 64), WireGuard},
		"keepalive":                      {wg(4, 32), WireGuard},
		"full-sized data at MTU 1420":    {wg(4, 1452), WireGuard},
		"index looks like STUN's cookie": {indexLikeCookie, WireGuard},
		"short initiation":               {wg(1, 147), WireGuardLength},
		"long initiation":                {wg(1, 149), WireGuardLength},
		"response of another length":     {wg(2, 148), WireGuardLength},
		"cookie reply of another length": {wg(3, 32), WireGuardLength},
		"short data":                     {wg(4, 31), WireGuardLength},
		"header alone":                   {wg(1, 4), WireGuardLength},
		"type 0":                         {wg(0, 148), Unknown},
		"type 5":                         {wg(5, 148), Unknown},
		"reserved byte set":              {append([]byte{4, 0, 1, 0}, make([]byte, 28)...), Unknown},
		"binding request":                {stun(0x0001, 0, 0), STUN},
		"binding success with body":      {stun(0x0101, 12, 0), STUN},
		"STUN with trailing byte":        {stun(0x0001, 0, 1), STUNLength},
		"STUN with trailing word":        {stun(0x0001, 0, 4), STUNLength},
		"STUN cut short":                 {stun(0x0001, 4, 0)[:20], STUNLength},
		"STUN header cut short":          {stun(0x0001, 0, 0)[:8], STUNLength},
		"STUN length not of words":       {stun(0x0001, 3, 0), STUNLength},
		"STUN without magic cookie":      {make([]byte, 20), Unknown},
		"channel data":                   {[]byte{0x40, 0, 0, 0}, ChannelData},
		"last channel":                   {[]byte{0x7f}, ChannelData},
		"beyond the channels":            {[]byte{0x80, 0, 0, 0}, Unknown},
		"nothing":                        {nil, Empty},
		"one byte":                       {[]byte{1}, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Classify(test.in); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// FuzzClassify compares with the rules of the package comment, spelled out one by one.
func FuzzClassify(f *testing.F) {
	f.Add(initiation(1))
	f.Add(response(1))
	f.Add(data(1, 33))
	f.Add(stunRequest())
	f.Add(append(stunRequest(), 0, 0, 0, 0))
	f.Add([]byte{0x40, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		got := Classify(b)
		if !bytes.Equal(before, b) {
			t.Fatal("the datagram was changed")
		}
		isWireGuard := len(b) >= 32 && bytes.Equal(b[1:4], []byte{0, 0, 0}) &&
			(b[0] == 1 && len(b) == 148 || b[0] == 2 && len(b) == 92 || b[0] == 3 && len(b) == 64 || b[0] == 4)
		isSTUN := len(b) >= 20 && len(b) < 1<<16+20 && b[0] < 2 && b[1] != 0 && bytes.Equal(b[4:8], []byte{0x21, 0x12, 0xa4, 0x42}) &&
			len(b)%4 == 0 && int(b[2])<<8+int(b[3])+20 == len(b)
		if (got == WireGuard) != isWireGuard || (got == STUN) != isSTUN {
			t.Errorf("%x: got %v, but WireGuard is %v and STUN is %v", b, got, isWireGuard, isSTUN)
		}
		if got >= classes {
			t.Errorf("%x: class %d does not exist", b, got)
		}
	})
}
