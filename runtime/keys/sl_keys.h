/* clang-format off */
/* runtime/keys/sl_keys.h - keys of token blocks, byte for byte as the engines derive them.
 *
 * One function serves all formats, for stores and loads, so that both sides derive the same keys.
 * Formats:
 *
 *   name                 hash of a block                                 key, partial last block
 *   fastdeploy           SHA-256(pickle4(([tokens],
 *                                [parent hex?] + [extras])))             hex, "HEX:partial:N"
 *   fastdeploy-v1        SHA-256(pickle4((parent hex or "", (tokens),
 *                                (extras) or None)))                     hex, none
 *   vllm-sha256          SHA-256(pickle5((parent, (tokens),
 *                                (extras) or None)))                     hex, none
 *   vllm-sha256-cbor     SHA-256(cbor of the same)                       hex, none
 *   vllm-xxhash          XXH3-128(pickle5 of the same), 16 bytes         hex, none
 *   vllm-xxhash-cbor     XXH3-128(cbor of the same)                      hex, none
 *   sglang               SHA-256(parent ++ u32 tokens)                   hex, none
 *   sglang-bigram        the same over pairs (t, t + 1):
 *                        a page of n pairs spans n + 1 tokens            hex, none
 *   lmcache-sha256       as vllm-sha256 without extras                   hex, hex
 *   lmcache-sha256-cbor  as vllm-sha256-cbor without extras              hex, hex
 *   sluice               SHA-256(header ++ parent ++ tagged extras
 *                                ++ u32 tokens)                          hex, "HEX:partial:N"
 *
 * Seed. vllm and lmcache: the text of PYTHONHASHSEED, empty is "vllm-none-hash"; the parent of
 * block 0 is the hash of the seed. sluice: any text; different seeds give unrelated keys.
 * fastdeploy and sglang have none, and ignore it. A parent given in the request replaces
 * the seed.
 *
 * Extras are JSON: a list with one list for each block. null, [] and a missing entry mean none.
 * Elements: text, integer (64 bit), null, {"hex": "00ff"} (bytes), nested lists (tuples, such as
 * ["mmhash0", 3]), and {"same_as": i}: the same Python object as leaf i of this block. Leaves are
 * counted from 0 through nested lists, {"same_as"} included. This matters because pickle formats
 * write a repeated object as a reference to the first one. Equal texts without {"same_as"} are
 * different objects, except for empty and one-character (up to U+00FF) texts and bytes: Python has
 * a single object of each.
 *   sglang formats take only the namespace of the request as extras, in the entry of block 0:
 *     [[{"extra_key": "lora-a", "cache_salt": null}]]
 *   sluice also takes named extras, {"lora": "a"}, {"salt": "a"}. The name is part of the key, so
 * a LoRA and a salt of the same text differ. The order of members is ignored, that of elements is
 * significant.
 *   fastdeploy does not hash the extras of an incomplete last block.
 *
 * sluice, version 1. All integers are little-endian.
 *   header  := "sluice" u8 tag u8 version(1) u32 block_tokens u32 token_count
 *   root    := SHA-256("sluice" 'R' 1 u32 0 u32 0 u64 seed_bytes seed)
 *   block   := SHA-256(header('B') parent[32] u64 extras_bytes extras tokens)
 *              an incomplete one has tag 'P'
 *   extras  := element*
 *   element := 'n' | 'i' i64 | 't' u64 n bytes | 'b' u64 n bytes | '(' element* ')'
 *            | '{' ('t' u64 n name element)* '}' with names in rising byte order */
/* clang-format on */
#ifndef SL_KEYS_H
#define SL_KEYS_H

#include "runtime/base/sl_error.h"

#include <stdio.h>

#define SL_KEYS_BLOCK_TOKENS_MAX 65536u
#define SL_KEYS_EXTRAS_BYTES_MAX (1u << 20)
#define SL_KEYS_SEED_BYTES_MAX   255u
/* Longest key: 64 hex digits, ":partial:", 5 digits. */
#define SL_KEYS_KEY_BYTES_MAX  80u
#define SL_KEYS_LINE_BYTES_MAX (UINT64_C(64) << 20)

struct sl_keys; /* opaque: digest contexts and buffers, reused by calls; one thread at a time */

struct sl_keys_request {
    const char *format;
    const uint32_t *tokens; /* borrowed; host order, which is little-endian */
    uint64_t token_count;
    const char *extras;       /* JSON text; NULL or empty: none */
    const char *seed;         /* NULL or empty: the format's default */
    const char *parent;       /* hex key of the previous block; NULL or empty: none */
    uint32_t block_tokens;    /* 1..SL_KEYS_BLOCK_TOKENS_MAX */
    uint32_t pickle_protocol; /* 0: the format's default (fastdeploy 4, others 5); 4 or 5 */
    bool partial;             /* an incomplete last block gets a key if the format has one */
};

/* Receives one key; text is borrowed for the call and zero-terminated. A return value other than
 * SL_OK ends the run with it. */
typedef sl_err (*sl_keys_each_fn)(void *context, uint64_t block, const char *text, uint32_t length);

/* Gives *out. Errors: SL_ERR_NO_MEMORY, SL_ERR_UNSUPPORTED (the crypto library has no SHA-256). */
sl_err sl_keys_create(struct sl_keys **out, struct sl_error *why);
void sl_keys_destroy(struct sl_keys **keys);

/* Checks that the format exists; SL_ERR_INVALID names it and lists the formats. */
sl_err sl_keys_format_check(const char *format, struct sl_error *why);

/* Number of keys that a request yields. Errors: SL_ERR_INVALID (format, block_tokens). */
sl_err sl_keys_count(const struct sl_keys_request *request, uint64_t *count, struct sl_error *why);

/* Calls each() for every block in order. All arguments are checked before the first call. Errors:
 * SL_ERR_INVALID (names the field, the block and the element), SL_ERR_NO_MEMORY, or the result of
 * each(). */
sl_err sl_keys_derive(struct sl_keys *keys, const struct sl_keys_request *request,
                      sl_keys_each_fn each, void *context, struct sl_error *why);

/* The same for one JSON object {"tokens": [...], "extras": [[...] per block], "seed": "...",
 * "parent": "hex"}; all but tokens may be missing or null. form gives format, block_tokens,
 * pickle_protocol and partial; its other members are ignored. Prints one key per line to out;
 * nothing if the input is invalid. Errors: those of derive; SL_ERR_INVALID (not JSON: with line and
 * column; unknown or mistyped member), SL_ERR_IO (out). */
sl_err sl_keys_print_json_line(struct sl_keys *keys, const struct sl_keys_request *form,
                               const char *line, uint64_t length_bytes, FILE *out,
                               struct sl_error *why);

#endif
