/* runtime/keys/sl_block_names.h - finds the block that a key of the store belongs to, and which
 * part of the block its value is.
 *
 * Engines' connectors put a value for each rank, layer, or half of a block, under keys of their
 * own:
 *
 *   vLLM       [PREFIX@]MODEL@tp_rank:T@pcpP@dcpD@pp_rank:Q[@group:G]@HASH
 *   SGLang     [PREFIX_]HASH_T[_Q]_k, ..._v; HASH__k where all ranks have the same
 *   FastDeploy prefixP_HASH_RANK_key, ..._value, ..._key_scale, ..._value_scale
 *   LMCache    MODEL@WORLD@WORKER@HASH@TYPE[@LAYER][@TAG%VALUE...], FORMAT@MODEL@WORLD@WORKER@HASH
 *
 * So do Sluice's own back ends, when they do not store blocks as such (MODEL/BLOCK/PART/POOL):
 *
 *   sglang/IDENTITY/HASH/heads0-8,   lmcache/LAYOUT/ and a key of LMCache's,
 *   vllm-tier/NAME_rRANK/LAYOUT/HASH and eight digits of the group
 *
 * Keys that differ only in hash and part are of one family, whose blocks have the same parts. A
 * tenant other than the default one (client/mooncake/store/names.h) counts as part of the model.
 * Other keys belong to no block; nor do keys of incomplete blocks (`HASH:partial:N`) and of
 * SGLang's pools besides that of K and V: no router asks for them. */
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
    const char *model; /* points into the key; distinguishes models; borrowed */
    uint32_t model_length;
    uint32_t group_index; /* number of vLLM's KV cache group */
    bool sglang;          /* SGLang's events use other integers */
    /* The block's hash as bytes: decoded if it is hexadecimal, otherwise the key's own bytes, or
     * their XXH3-128 if they are more than 32. */
    uint8_t hash[SL_BLOCK_HASH_BYTES];
    uint32_t hash_length;
    bool named; /* the hash is a name chosen by a user */
};

/* block_length: length of the block's key (MODEL/BLOCK) if the value is a part of a block; 0: a
 * value by itself. False: the key belongs to no block. */
bool sl_block_name_parse(const char *key, uint32_t key_length, uint32_t block_length,
                         struct sl_block_name *out);

/* The hash as engines publish it where hashes are integers: for vLLM its low 64 bits, for SGLang
 * its first eight bytes, signed (*is_signed), for a name its XXH3-64. */
uint64_t sl_block_name_number(const struct sl_block_name *name, bool *is_signed);

#endif
