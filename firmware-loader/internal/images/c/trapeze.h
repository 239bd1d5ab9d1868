/* Control programs of Trapeze NICs in C. Compile with
 *
 *     clang -O2 -g -target bpf -c program.c -o program.o
 *     trapeze fw build --from program.o --output program.img
 *
 * descriptors/SPEC.md section 14 says what the hooks are asked and may answer. No
 * other header is needed; this one can stand beside those of Linux and libbpf.
 */
#ifndef TRAPEZE_H
#define TRAPEZE_H

typedef __UINT8_TYPE__ u8;
typedef __UINT16_TYPE__ u16;
typedef __UINT32_TYPE__ u32;
typedef __UINT64_TYPE__ u64;
typedef __INT64_TYPE__ s64;

/* The ABI that this header describes: major << 16 | minor. */
#define TRAPEZE_ABI 0x10000u

/* Puts a program into the section of its hook, one program a hook:
 *     TRAPEZE_HOOK("pulse/tx") u64 decide(struct trapeze_pulse *p) { ... }
 * Functions that it calls are TRAPEZE_INLINE: the NIC has no calls of functions. */
#define TRAPEZE_HOOK(HOOK) __attribute__((section(HOOK), used))
#define TRAPEZE_INLINE static inline __attribute__((always_inline))

/* What pulse/tx and pulse/rx read. The answer is the number of bytes to move now;
 * 0 is wait. */
struct trapeze_pulse {
	u32 length;  /* bytes of the oldest frame that has not left */
	u32 arrived; /* bytes of it that are in NIC memory */
	u32 sent;    /* bytes of it that earlier transfers have moved */
	u32 queued;  /* frames that wait behind it */
	u32 minimum; /* MINPULSE register of the direction, in bytes */
	u32 frame;   /* number of the frame, wraps */
};

/* What demux/rx, filter/tx and filter/rx read: the shape of struct xdp_md. */
struct trapeze_frame {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 interface;
	u32 queue;
};

/* The frame's first byte, and behind its last. Compare with the end before each
 * access. */
#define TRAPEZE_DATA(F) ((void *)(long)(F)->data)
#define TRAPEZE_END(F) ((void *)(long)(F)->data_end)

/* Answers of filter/tx and filter/rx. */
enum trapeze_action {
	TRAPEZE_ABORTED = 0,
	TRAPEZE_DROP = 1,
	TRAPEZE_PASS = 2,
	TRAPEZE_REDIRECT = 4, /* of filter/rx, with TRAPEZE_TO */
};
#define TRAPEZE_TO(QUEUE) ((u32)TRAPEZE_REDIRECT | (u32)(QUEUE) << 8)

/* The answer of demux/rx: a receive queue and an entry of its payload table. */
#define TRAPEZE_DEFAULT 0xffffffffu
#define TRAPEZE_DEMUX(QUEUE, ENTRY) ((u64)(u32)(ENTRY) << 32 | (u32)(QUEUE))

/* Maps:
 *     struct {
 *             TRAPEZE_UINT(type, TRAPEZE_HASH);
 *             TRAPEZE_TYPE(key, u32);
 *             TRAPEZE_TYPE(value, u64);
 *             TRAPEZE_UINT(max_entries, 1024);
 *     } flows TRAPEZE_MAP;
 */
#define TRAPEZE_MAP __attribute__((section(".maps"), used))
#define TRAPEZE_UINT(NAME, VALUE) int(*NAME)[VALUE]
#define TRAPEZE_TYPE(NAME, TYPE) typeof(TYPE) *NAME
#define TRAPEZE_HASH 1
#define TRAPEZE_ARRAY 2
#define TRAPEZE_READ_ONLY 0x80 /* of map_flags */

/* Helpers. Numbers and meaning are those of the Linux kernel's. */
#define TRAPEZE_ANY 0
#define TRAPEZE_ABSENT 1
#define TRAPEZE_EXISTS 2
static void *(*const trapeze_lookup)(void *map, const void *key) __attribute__((unused)) = (void *)1;
static long (*const trapeze_update)(void *map, const void *key, const void *value, u64 flags) __attribute__((unused)) = (void *)2;
static long (*const trapeze_delete)(void *map, const void *key) __attribute__((unused)) = (void *)3;
static u64 (*const trapeze_time)(void) __attribute__((unused)) = (void *)5; /* nanoseconds */

/* The note that names the image. `trapeze fw build` and `fw sign` fill in what is
 * zero here. */
struct trapeze_note {
	u32 name_size, size, type;
	char owner[8];
	u32 abi, device, sram, reserved;
	char name[32];
	char version[16];
	u8 build_id[20];
	u32 reserved2;
	u8 digest[32];
	u32 flags;
	u8 key_id[8];
	u8 signature[64];
};

/* TRAPEZE_IMAGE("count", "1.0"): once in an image. TRAPEZE_IMAGE_FOR has the NICs
 * that it is for as well, PCI vendor << 16 | device; 0 is any. */
#define TRAPEZE_IMAGE(NAME, VERSION) TRAPEZE_IMAGE_FOR(NAME, VERSION, 0)
#define TRAPEZE_IMAGE_FOR(NAME, VERSION, DEVICE) \
	const struct trapeze_note trapeze_note __attribute__((section(".note.trapeze"), used)) = { \
		.name_size = 8, .size = 196, .type = 1, .owner = "Trapeze", \
		.abi = TRAPEZE_ABI, .device = (DEVICE), .name = NAME, .version = VERSION, \
	}

#endif
