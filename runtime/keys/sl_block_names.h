/* runtime/keys/sl_block_names.h - which block a key of the store belongs to, and which part of it
 * it is.
 *
 * Engines' connectors put a value for each rank, layer, or half of a block, under keys of their
 * own:
 *
 *   vLLM       [PREFIX@]MODEL@tp_rank:T@pcpP@dcpD@pp_rank:Q[@group:G]@HASH
 *   SGLang     [PREFIX_]HASH_T[_Q]_k, ..._v; HASH__k where all ranks have the same
 *   FastDeploy prefixP_HASH_RANK_key, ..._value, ..._key_scale, ..._value_scale
 *   LMCache    MODEL@WORLD@WORKER@HASH@TYPE[@LAYER][@TAG%VALUE...], FORMAT@MODEL@WORLD@WORKER@HASH
 *
 * and so do Sluice's own back ends, where they do not store blocks as such (MODEL/BLOCK/PART/POOL):
 *
 *   sglang/IDENTITY/HASH/heads0-8,   lmcache/LAYOUT/ and a key of LMCache's,
 *   vllm-tier/NAME_rRANK/LAYOUT/HASH and eight digits of the group
 *
 * Keys that differ in the hash and the part alone are of one family: its blocks have the same
 * parts. Of a tenant that is not the default one (client/mooncake/store/names.h) the tenant belongs
 * to the model. Other keys belong to no block. Neither do those of incomplete blocks
 * (`HASH:partial:N`), and of SGLang's pools beside that of K and V: no router asks for them. */
#ifndef SL_BLOCK_NAMES_H
#define SL_BLOCK_NAMES_H

#include "runtime/base/sl_base.h"

#define SL_BLOCK_FAMILY_BYTES 1100u
#define SL_BLOCK_PART_BYTES   1100u
#define SL_BLOCK_HASH_BYTES   32u
#define SL_BLOCK_NO_GROUP     UINT32_MAX

struct sl_block_name {
    char family[SL_BLOCK_FAMILY_BYTES];
    uint32_t family_length;
    char part[SL_BLOCK_PART_BYTES];
    uint32_t part_length;
    const char *model; /* in the key: what tells models apart; borrowed */
    uint32_t model_length;
    uint32_t group_index; /* of vLLM's groups of caches */
    bool sglang;          /* whose events have other integers */
    /* The block's hash as bytes: of a hexadecimal one those that it stands for; else the key's own
     * bytes, of more than 32 their XXH3-128. */
    uint8_t hash[SL_BLOCK_HASH_BYTES];
    uint32_t hash_length;
    bool named; /* the hash is a name that somebody chose */
};

/* block_length: of the key of the block that the value is a part of (MODEL/BLOCK); 0: it is a value
 * by itself. False: the key belongs to no block. */
bool sl_block_name_parse(const char *key, uint32_t key_length, uint32_t block_length,
                         struct sl_block_name *out);

/* The hash as engines publish it where hashes are integers: of vLLM the low 64 bits; of SGLang the
 * first eight bytes, with a sign (*is_signed); of a name its XXH3-64. */
uint64_t sl_block_name_number(const struct sl_block_name *name, bool *is_signed);

#endif
