/* tests/unit/runtime/keys/block_names_test.c - a key's block and part, in the formats of engines'
 * connectors. */
#include "runtime/keys/sl_block_names.h"
#include "tests/unit/ipc/shm/shm_support.h"

#define H16  "0123456789abcdef"
#define H64  H16 H16 H16 H16
#define ID32 "00112233445566778899aabbccddeeff"

static const struct {
    const char *key;
    uint32_t block_length;
    const char *model;
    uint32_t group;
    uint32_t hash_length;
    bool sglang;
} named[] = {
    /* vLLM's Mooncake connector: of 2025, of 2026, with a prefix and a fingerprint */
    {"Llama@tp_rank:0@pcp0@dcp0@pp_rank:0@" H64, 0, "Llama", SL_BLOCK_NO_GROUP, 32, false},
    {"Llama@tp_rank:3@pcp0@dcp0@pp_rank:1@group:2@" H64, 0, "Llama", 2, 32, false},
    {"a@Llama[x]@cfg:0123456789ab@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@" H16 H16, 0,
     "a@Llama[x]@cfg:0123456789ab", 0, 16, false},
    /* SGLang's: MHA, pipelines, MLA, tagged */
    {H64 "_0_k", 0, "", SL_BLOCK_NO_GROUP, 32, true},
    {H64 "_3_1_v", 0, "", SL_BLOCK_NO_GROUP, 32, true},
    {H64 "__k", 0, "", SL_BLOCK_NO_GROUP, 32, true},
    {"tag_org-model_" H64 "_0_k", 0, "tag_org-model", SL_BLOCK_NO_GROUP, 32, true},
    /* FastDeploy's */
    {"prefix_" H64 "_0_key", 0, "prefix", SL_BLOCK_NO_GROUP, 32, false},
    {"prefixRL-STEP12_" H64 "_3_value_scale", 0, "prefixRL-STEP12", SL_BLOCK_NO_GROUP, 32, false},
    /* LMCache's: newest, layer by layer, with a tag, older; an integer as the hash */
    {"meta/Llama@1@0@" H64 "@bfloat16", 0, "meta/Llama", SL_BLOCK_NO_GROUP, 32, false},
    {"meta/Llama@2@1@" H64 "@bfloat16@17", 0, "meta/Llama", SL_BLOCK_NO_GROUP, 32, false},
    {"meta/Llama@2@1@" H64 "@half@lora%a", 0, "meta/Llama", SL_BLOCK_NO_GROUP, 32, false},
    {"vllm@meta/Llama@2@1@" H64, 0, "vllm@meta/Llama", SL_BLOCK_NO_GROUP, 32, false},
    {"m@1@0@123456789@half", 0, "m", SL_BLOCK_NO_GROUP, 5, false},
    /* of a tenant that is not the default one */
    {"\x01tenant\x01Llama@tp_rank:0@pcp0@dcp0@pp_rank:0@" H64, 0, "tenant\x01Llama",
     SL_BLOCK_NO_GROUP, 32, false},
    {"\x01tenant\x01" H64 "_0_k", 0, "tenant", SL_BLOCK_NO_GROUP, 32, true},
    /* Sluice's own */
    {ID32 "/" H64 "/0/kv", 97, ID32, SL_BLOCK_NO_GROUP, 32, false},
    {ID32 "/any/name/0/kv", 41, ID32, SL_BLOCK_NO_GROUP, 8, false},
    {"sglang/" ID32 "/" H64 "/heads0-8", 0, ID32, SL_BLOCK_NO_GROUP, 32, true},
    {"sglang/" ID32 "/" H64, 0, ID32, SL_BLOCK_NO_GROUP, 32, true},
    {"lmcache/layout/meta/Llama@2@1@" H64 "@half", 0, "meta/Llama", SL_BLOCK_NO_GROUP, 32, false},
    {"vllm-tier/m_1_r2_0_r12/x/y/" H64 "00000001", 0, "m_1_r2_0", 1, 32, false},
};

START_TEST(a_key_of_a_connector_tells_its_block)
    {
        static struct sl_block_name name;
        const char *key = named[_i].key;

        ck_assert_msg(
            sl_block_name_parse(key, (uint32_t)strlen(key), named[_i].block_length, &name), "%s",
            key);
        ck_assert_int_eq((int)name.model_length, (int)strlen(named[_i].model));
        ck_assert_mem_eq(name.model, named[_i].model, name.model_length);
        ck_assert_uint_eq(name.group_index, named[_i].group);
        ck_assert_uint_eq(name.hash_length, named[_i].hash_length);
        ck_assert_int_eq(name.sglang, named[_i].sglang);
        if (name.hash_length >= 16) {
            ck_assert_uint_eq(name.hash[0], 0x01);
            ck_assert_uint_eq(name.hash[7], 0xef);
            ck_assert(!name.named);
        }
    }
END_TEST

static const char *const of_no_block[] = {
    "greeting",
    "sglang_mooncake_store_warmup_key" ID32,
    H64 "_0_temporal",
    H64 "_0_swa_k",
    H64 "_0_draft_k",
    "prefix_" H64 ":partial:7_0_key",
    "fastdeploy_mooncake_store_warmup_key" ID32,
    "Llama@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@xyz",
    "Llama@tp_rank:0@pcp0@dcp0@pp_rank:0@group:x@" H64,
    "@tp_rank:0@" H64,
    "m@1@0@half",
    "sglang/",
    "sglang/" ID32 "/",
    "lmcache/",
    "vllm-tier/x",
    "vllm-tier/x_r/y/" H64,
    "_k",
    "@",
    "\x01",
    "\x01\x01",
    "\x01t\x01x",
};

START_TEST(other_keys_are_of_no_block)
    {
        static struct sl_block_name name;
        const char *key = of_no_block[_i];
        ck_assert_msg(!sl_block_name_parse(key, (uint32_t)strlen(key), 0, &name), "%s", key);
    }
END_TEST

static void parse(const char *key, uint32_t block_length, struct sl_block_name *out)
{
    ck_assert_msg(sl_block_name_parse(key, (uint32_t)strlen(key), block_length, out), "%s", key);
}

static const struct {
    const char *one, *other;
    bool same_part, same_family;
} pairs[] = {
    {"m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@" H64, "m@tp_rank:1@pcp0@dcp0@pp_rank:0@group:0@" H64,
     false, true},
    {"m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@" H64, "m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:1@" H64,
     true, false},
    {"m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@" H64,
     "m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@" H16 H16, true, true},
    {"m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@" H64, "n@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@" H64,
     true, false},
    {"\x01t\x01" H64 "_0_k", "\x01t\x01" H64 "_0_v", false, true},
    {"\x01t\x01" H64 "_0_k", "\x01u\x01" H64 "_0_k", true, false},
    {"\x01t\x01" H64 "_0_k", H64 "_0_k", true, false},
    {H64 "_0_k", H64 "_0_v", false, true},
    {H64 "_0_k", H64 "_1_k", false, true},
    {"a_" H64 "_0_k", H64 "_0_k", true, false},
    {"prefix_" H64 "_0_key", "prefix_" H64 "_1_key", false, true},
    {"m@2@0@" H64 "@half", "m@2@1@" H64 "@half", false, true},
    {"m@2@0@" H64 "@half@1", "m@2@0@" H64 "@half@2", false, true},
    {"m@2@0@" H64 "@half", "m@4@0@" H64 "@half", true, false},
    {"m@2@0@" H64 "@half@a%b", "m@2@0@" H64 "@half@a%c", true, false},
    {"lmcache/x/m@2@0@" H64 "@half", "lmcache/y/m@2@0@" H64 "@half", true, false},
    {"vllm-tier/a_r0/x/" H64 "00000000", "vllm-tier/a_r1/x/" H64 "00000000", false, true},
    {"vllm-tier/a_r0/x/" H64 "00000000", "vllm-tier/a_r0/x/" H64 "00000001", true, false},
    {"sglang/" ID32 "/" H64 "/heads0-4", "sglang/" ID32 "/" H64 "/heads4-8", false, true},
};

START_TEST(parts_of_a_block_are_of_one_family)
    {
        static struct sl_block_name one, other;
        parse(pairs[_i].one, 0, &one);
        parse(pairs[_i].other, 0, &other);
        bool same_part = one.part_length == other.part_length &&
                         memcmp(one.part, other.part, one.part_length) == 0;
        bool same_family = one.family_length == other.family_length &&
                           memcmp(one.family, other.family, one.family_length) == 0;
        ck_assert_msg(same_part == pairs[_i].same_part, "%s", pairs[_i].other);
        ck_assert_msg(same_family == pairs[_i].same_family, "%s", pairs[_i].other);
    }
END_TEST

START_TEST(hashes_become_the_integers_that_engines_publish)
    {
        static struct sl_block_name name;
        bool is_signed;
        /* engines.md: SG1, and the low 64 bits of a hash of vLLM's */
        parse("77d735ce838418aa151bd96b5b1e78ee63860892e0a95c00fe34178442be9b07_0_k", 0, &name);
        ck_assert(sl_block_name_number(&name, &is_signed) == UINT64_C(8635429971592222890));
        ck_assert(is_signed);
        parse("df3f619804a92fdb4057192dc43dd748ea778adc52bc498ce80524c014b81119_0_k", 0, &name);
        ck_assert((int64_t)sl_block_name_number(&name, &is_signed) ==
                  INT64_C(-2360060374177730597));
        parse("m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@" H16 H16 "fedcba9876543210", 0, &name);
        ck_assert(sl_block_name_number(&name, &is_signed) == UINT64_C(0xfedcba9876543210));
        ck_assert(!is_signed);
        parse(ID32 "/block-7/0/kv", 40, &name);
        ck_assert(name.named);
        uint64_t seven = sl_block_name_number(&name, &is_signed);
        parse(ID32 "/block-8/0/kv", 40, &name);
        ck_assert(sl_block_name_number(&name, &is_signed) != seven);
    }
END_TEST

START_TEST(long_names_are_digested)
    {
        static struct sl_block_name name;
        parse(ID32 "/a name of more than thirty-two bytes/0/kv", 32 + 1 + 36, &name);
        ck_assert_uint_eq(name.hash_length, 16);
        ck_assert(name.named);
    }
END_TEST

START_TEST(any_bytes_are_a_key_that_is_parsed_or_not)
    {
        static struct sl_block_name name;
        static const char *const pieces[] = {
            "@tp_rank:", "@group:",    H64,      H16,         "_0_k", "__k",
            "/",         "@",          "prefix", "_key",      "1",    "sglang/",
            "lmcache/",  "vllm-tier/", "_r1",    ":partial:", "\xff", "_"};
        uint64_t seed = random_seed("block_names");
        for (uint32_t round = 0; round < 200000; round++) {
            char key[SL_KEY_BYTES_MAX];
            uint32_t length = 0;
            for (uint64_t n = random_next(&seed) % 9; n > 0; n--) {
                const char *piece = pieces[random_next(&seed) % SL_COUNT(pieces)];
                memcpy(key + length, piece, strlen(piece));
                length += (uint32_t)strlen(piece);
            }
            char *exact = malloc(length + 1u); /* of its own, so that a byte too far is seen */
            memcpy(exact, key, length);
            uint32_t block = length > 0 ? (uint32_t)(random_next(&seed) % length) : 0;
            if (sl_block_name_parse(exact, length, random_next(&seed) % 2 == 0 ? block : 0,
                                    &name)) {
                ck_assert_uint_ge(name.hash_length, 1);
                ck_assert_uint_le(name.hash_length, SL_BLOCK_HASH_BYTES);
                ck_assert_uint_le(name.family_length, SL_BLOCK_FAMILY_BYTES);
                ck_assert(name.model >= exact && name.model + name.model_length <= exact + length);
            }
            free(exact);
        }
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("block_names");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_key_of_a_connector_tells_its_block, 0, SL_COUNT(named));
    tcase_add_loop_test(tcase, other_keys_are_of_no_block, 0, SL_COUNT(of_no_block));
    tcase_add_loop_test(tcase, parts_of_a_block_are_of_one_family, 0, SL_COUNT(pairs));
    tcase_add_test(tcase, hashes_become_the_integers_that_engines_publish);
    tcase_add_test(tcase, long_names_are_digested);
    tcase_add_test(tcase, any_bytes_are_a_key_that_is_parsed_or_not);
    return suite_run(tcase, "block_names");
}
