/* tests/unit/runtime/keys/keys_test.c - keys of every format against known vectors, and refusals of
 * bad requests. The vectors were computed with CPython's pickle and hashlib, cbor2 and xxhash. */
#include "runtime/keys/keys_encode.h"
#include "runtime/keys/sl_keys.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define M \
    "3dd3f8d1db39a536c4f48318eda8e4a804f53fbc2b25b94e3aa98b201be050da" /* sha256 of "image-0" */
#define FD4            "785603a0eefb22e928d356f44635e7f3c7bc04a6d93dcc655c4fe74b8e3d1a37"
#define FD5            "6d72d582be48c99dc1e60b3e58ca84b486bc48ac8dfb9ca9170ed8160bdcb1b8"
#define V1A            "20bf3484d7f93f59ae4af608aa89ea377631fc58c474636e2cfd40cbae03f6a9"
#define V1B            "ee05ed04d5a06c23f3850be20400fc83524e586ac391815eb64988fb7ea9a859"
#define SG1            "77d735ce838418aa151bd96b5b1e78ee63860892e0a95c00fe34178442be9b07"
#define SG2            "1170426cf2449cebf4d17f087ce5bb43b6a910ce91b3f40922868e913e8ee91d"
#define SG3            "4ef643c350b14a37eda268f7f706c44ec578320d32fdc20a9bce5f81e9603b11"
#define NONE_0_SHA     "1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c"
#define NONE_0_CBOR    "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e"
#define NONE_TEXT_SHA  "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198"
#define NONE_TEXT_CBOR "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0"
#define NONE_0_XXHASH  "6fb31cc38bba6066183f7f2104b9c051"
#define LM1            "f3de83132fabc7fa86835e24f2a2008df215e9d03ba998de8e1aaa1431327685"

#define TOKENS_MAX 1024u
#define KEYS_MAX   16u

struct answers {
    uint32_t count;
    char text[KEYS_MAX][SL_KEYS_KEY_BYTES_MAX];
};

static sl_err keep_key(void *context, uint64_t block, const char *text, uint32_t length)
{
    struct answers *answers = context;
    ck_assert_uint_lt(block, KEYS_MAX);
    ck_assert_uint_eq(block, answers->count);
    ck_assert_uint_eq(strlen(text), length);
    memcpy(answers->text[answers->count++], text, length + 1);
    return SL_OK;
}

static sl_err derive(const struct sl_keys_request *request, struct answers *out,
                     struct sl_error *why)
{
    struct sl_keys *keys = NULL;
    ck_assert_int_eq(sl_keys_create(&keys, why), SL_OK);
    *out = (struct answers){0};
    sl_err err = sl_keys_derive(keys, request, keep_key, out, why);
    sl_keys_destroy(&keys);
    return err;
}

static void range(uint32_t *tokens, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = first + i;
    }
}

/* Token ids first .. last. */
static const struct {
    const char *name, *format, *extras, *seed, *parent;
    uint32_t first, last, block_tokens;
    bool partial;
    const char *want[4];
} vectors[] = {
    {.name = "FD1",
     .format = "fastdeploy",
     .first = 1,
     .last = 4,
     .block_tokens = 4,
     .want = {"a9da410d139726dcdc1faa54c1add82ce9b2b5c23cbe03fca59c4da3651b69d2"}},
    {.name = "FD2",
     .format = "fastdeploy",
     .first = 7,
     .last = 7,
     .block_tokens = 1,
     .want = {"6d31831fe2763d143600feb37bddfedf355fc2d32baeebe4357690e05b251bbe"}},
    {.name = "FD4 FD5 FD7",
     .format = "fastdeploy",
     .first = 1,
     .last = 135,
     .block_tokens = 64,
     .partial = true,
     .want = {FD4, FD5,
              "ef75738915bce82296e468903f81ae3a8288506eaf617e1909ce38f3d1f69e9b:partial:7"}},
    {.name = "FD8",
     .format = "fastdeploy",
     .first = 129,
     .last = 129,
     .block_tokens = 64,
     .partial = true,
     .parent = FD5,
     .extras = "[[\"not hashed in an incomplete block\"]]",
     .want = {"5df174f2ef2d576b8c5a758a24a99ffdfe7bb3186710c5a2cb154d407d83acf7:partial:1"}},
    {.name = "full blocks only",
     .format = "fastdeploy",
     .first = 1,
     .last = 135,
     .block_tokens = 64,
     .want = {FD4, FD5}},
    {.name = "FD9",
     .format = "fastdeploy",
     .first = 65,
     .last = 128,
     .block_tokens = 64,
     .parent = FD4,
     .extras = "[[\"" M "\"]]",
     .want = {"1b7455ac43192f2ec0940998036a52a807fa6411b99872dd6ca4833f1e11b5b0"}},
    {.name = "FD11 same object",
     .format = "fastdeploy",
     .first = 1,
     .last = 4,
     .block_tokens = 4,
     .extras = "[[\"" M "\", {\"same_as\": 0}]]",
     .want = {"588e0eafdc4c202f325d87d96171ba084465325df872ddb03611e2d90dcb1906"}},
    {.name = "FD12 equal objects",
     .format = "fastdeploy",
     .first = 1,
     .last = 4,
     .block_tokens = 4,
     .extras = "[[\"" M "\", \"" M "\"]]",
     .want = {"58238448579f417575cd362cbab771dd149fc48fc79d988bbe54f78a7e83291c"}},
    {.name = "V1a V1b",
     .format = "fastdeploy-v1",
     .first = 1,
     .last = 128,
     .block_tokens = 64,
     .extras = "[null, []]",
     .want = {V1A, V1B}},
    {.name = "V1d, and no partial key",
     .format = "fastdeploy-v1",
     .first = 1,
     .last = 4,
     .block_tokens = 3,
     .partial = true,
     .want = {"b8adea6cd2c08a63d319ba48e9f716d991731386fb5c05e5bb0883d1fa4da094"}},
    {.name = "vllm sha256, seed 0",
     .format = "vllm-sha256",
     .seed = "0",
     .first = 1,
     .last = 32,
     .block_tokens = 16,
     .want = {"bea72b7d33de03c1aa715efbb492d0e0d3801f00c1f985756896072ae8b31325",
              "2744667f6645310ff670b0c5d7c64987ffa5940de5a549f17d92dcbb5b559e31"}},
    {.name = "vllm sha256, parent for seed",
     .format = "vllm-sha256",
     .seed = "ignored",
     .parent = NONE_0_SHA,
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"bea72b7d33de03c1aa715efbb492d0e0d3801f00c1f985756896072ae8b31325"}},
    {.name = "vllm sha256, default seed",
     .format = "vllm-sha256",
     .seed = "",
     .first = 1,
     .last = 32,
     .block_tokens = 16,
     .want = {"7b255da405e1d722823892e4fef187b4d8ac78215d7f0dd2137bb037547f4caf",
              "8e717becdc2054b7a3223b7b844f462c0db0ac86287b752b16d077ad0843c577"}},
    {.name = "vllm sha256 cbor, seed 0",
     .format = "vllm-sha256-cbor",
     .seed = "0",
     .first = 1,
     .last = 32,
     .block_tokens = 16,
     .want = {"202da172482d928bbc42ab25b0151e2b895f13f41002e27b2ceabcfae6d332ea",
              "4a0a393805c6d2f0ed831000d41bb65980336c4c04895d5e26470bbec927f5bf"}},
    {.name = "vllm sha256 cbor, default seed",
     .format = "vllm-sha256-cbor",
     .first = 1,
     .last = 32,
     .block_tokens = 16,
     .want = {"cd7c51bc5a8fc8643f383a2b9e01522fba7473c669e9270c7b0bf7bf7fd01682",
              "2533ea50426b36e9e4d68296cac6bce8cf602e46957d0fe40b368b33d87bf3bf"}},
    {.name = "vllm sha256 cbor, upper case parent",
     .format = "vllm-sha256-cbor",
     .parent = "4E1195DF020DE59E0D65A33A4279F1183E7AE4E5D980E309F8B55ADFF2E61C3E",
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"202da172482d928bbc42ab25b0151e2b895f13f41002e27b2ceabcfae6d332ea"}},
    {.name = "vllm xxhash",
     .format = "vllm-xxhash",
     .seed = "0",
     .first = 1,
     .last = 32,
     .block_tokens = 16,
     .want = {"6ba7d7fc1608e5f0a4612b1b0c87458f", "dbd92304eaa08219c5cf8f4ce18166b6"}},
    {.name = "vllm xxhash, parent",
     .format = "vllm-xxhash",
     .parent = NONE_0_XXHASH,
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"6ba7d7fc1608e5f0a4612b1b0c87458f"}},
    {.name = "vllm lora",
     .format = "vllm-sha256",
     .extras = "[[\"lora-a\"]]",
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"ac7e73f947a8030e904691840aaa0a8ecfb667a5fd82d41f58b04d5886307933"}},
    {.name = "vllm lora cbor",
     .format = "vllm-sha256-cbor",
     .extras = "[[\"lora-a\"]]",
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"3a9724c4464f01e74aae19bce496a0e2bf1fe1e24d5d103907f32ec6174d9fc9"}},
    {.name = "vllm salt",
     .format = "vllm-sha256",
     .extras = "[[\"salt-1\"]]",
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"63329fc0aec03ca09d4ed5e7f35bd7d1d162a0b035b00c06ee49cdddf943892d"}},
    {.name = "vllm salt cbor",
     .format = "vllm-sha256-cbor",
     .extras = "[[\"salt-1\"]]",
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"3d896d3391849583f8d44885f5299656bc3f8af8abbae90fcc7d4d56e111542a"}},
    {.name = "vllm mm",
     .format = "vllm-sha256",
     .extras = "[[[\"mmhash0\", 3]]]",
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"4708a023c6c98e68ddf9999ce5b2f46e8b5515c33b3c8d61081343bcddc10260"}},
    {.name = "vllm mm cbor",
     .format = "vllm-sha256-cbor",
     .extras = "[[[\"mmhash0\", 3]]]",
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"9e7e50d18c2dae57c38990582d273ccb5b7851afda714f6226cb3c2bd5bdcec9"}},
    {.name = "vllm mm before",
     .format = "vllm-sha256",
     .extras = "[[[\"mmhash0\", -5]]]",
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"546c34df7377bf4a0f431b734fc7bca2fef30f977cc5a419cf4f7151f7e2e214"}},
    {.name = "vllm mm before cbor",
     .format = "vllm-sha256-cbor",
     .extras = "[[[\"mmhash0\", -5]]]",
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"a56ef4eb7770efc676952e60a87cf71d5d80a40d995e139f48712112ae793b78"}},
    {.name = "vllm older mm",
     .format = "vllm-sha256",
     .extras = "[[\"mmhash0\"]]",
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"190281c24cff39ea54c84c9dc19bd7a11a68d4f16f6acbeb428bda2ce7a54a0d"}},
    {.name = "vllm older mm cbor",
     .format = "vllm-sha256-cbor",
     .extras = "[[\"mmhash0\"]]",
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"653864cccacb1417f53be5c38016c62867c8cdbe166ab72cff92c30ca0e8050e"}},
    {.name = "SG1 SG2 SG3",
     .format = "sglang",
     .first = 1,
     .last = 50,
     .block_tokens = 16,
     .partial = true,
     .want = {SG1, SG2, SG3}},
    {.name = "SG2 by parent",
     .format = "sglang",
     .first = 17,
     .last = 32,
     .block_tokens = 16,
     .parent = SG1,
     .want = {SG2}},
    {.name = "SG4",
     .format = "sglang",
     .first = 0,
     .last = 0,
     .block_tokens = 1,
     .want = {"df3f619804a92fdb4057192dc43dd748ea778adc52bc498ce80524c014b81119"}},
    {.name = "SG5",
     .format = "sglang",
     .first = 1,
     .last = 64,
     .block_tokens = 64,
     .want = {"0c8f462927e331f28e3f1a6d342957cd27118febc309bd3b2f646e2dfbaeec32"}},
    {.name = "SG7",
     .format = "sglang-bigram",
     .first = 1,
     .last = 5,
     .block_tokens = 4,
     .want = {"f721fe42aac11dcbfd1a17f24cc5765a0d5b6bc264d1c0b6581d775a7344c11f"}},
    {.name = "a bigram page needs one token more",
     .format = "sglang-bigram",
     .first = 1,
     .last = 4,
     .block_tokens = 4,
     .want = {NULL}},
    {.name = "SG9",
     .format = "sglang",
     .extras = "[[{\"extra_key\": \"lora-a\"}]]",
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"dc4ccb37c2d5e275b039b3ccb1a307fd4480c15a05f5d2276fbc03f51c9661e0"}},
    {.name = "SG9 by parent",
     .format = "sglang",
     .parent = "407c773a7c02b33bd4a62af6bf5fc77997c2c8067811ecf2b39e3839c3f4284b",
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"dc4ccb37c2d5e275b039b3ccb1a307fd4480c15a05f5d2276fbc03f51c9661e0"}},
    {.name = "SG10",
     .format = "sglang",
     .extras = "[[{\"extra_key\": null, \"cache_salt\": \"salt-1\"}]]",
     .first = 1,
     .last = 16,
     .block_tokens = 16,
     .want = {"dee4505c92d2cf7024dac1d953cdab4724ad348c115cf6f5dd3045de01762d86"}},
    {.name = "LM1",
     .format = "lmcache-sha256-cbor",
     .seed = "0",
     .first = 0,
     .last = 255,
     .block_tokens = 256,
     .want = {LM1}},
    {.name = "LM3 is the third of these",
     .format = "lmcache-sha256-cbor",
     .seed = "0",
     .first = 0,
     .last = 511,
     .block_tokens = 256,
     .partial = true,
     .want = {LM1, NULL}},
    {.name = "LM4",
     .format = "lmcache-sha256-cbor",
     .first = 0,
     .last = 599,
     .block_tokens = 256,
     .partial = true,
     .want = {"dd47fa420415cf9acaf8ddeab12385e1265d5358c82da0c75d3418b1423a61ad",
              "a952543a954e2ac3a06c5d0ce3f464633425dd256d9780fab90bdd035d6d437a",
              "74a4851992dd2adb96e0d29d1a2d7235e2d7e588236146606b6925f59102d92e"}},
    {.name = "LM4 without the unfull chunk",
     .format = "lmcache-sha256-cbor",
     .first = 0,
     .last = 599,
     .block_tokens = 256,
     .want = {"dd47fa420415cf9acaf8ddeab12385e1265d5358c82da0c75d3418b1423a61ad",
              "a952543a954e2ac3a06c5d0ce3f464633425dd256d9780fab90bdd035d6d437a"}},
};

START_TEST(keys_equal_the_engines_own)
    {
        uint32_t tokens[TOKENS_MAX];
        struct answers got;
        struct sl_error why = {0};
        range(tokens, vectors[_i].first, vectors[_i].last - vectors[_i].first + 1);
        struct sl_keys_request request = {.format = vectors[_i].format,
                                          .block_tokens = vectors[_i].block_tokens,
                                          .tokens = tokens,
                                          .token_count = vectors[_i].last - vectors[_i].first + 1,
                                          .extras = vectors[_i].extras,
                                          .seed = vectors[_i].seed,
                                          .parent = vectors[_i].parent,
                                          .partial = vectors[_i].partial};

        sl_err err = derive(&request, &got, &why);

        ck_assert_msg(err == SL_OK, "%s: %s", vectors[_i].name, why.text);
        for (uint32_t i = 0; i < SL_COUNT(vectors[_i].want); i++) {
            const char *want = vectors[_i].want[i];
            if (want == NULL) {
                /* LM2 is only known through LM3, which has it as its parent. */
                ck_assert_msg(got.count == i || strstr(vectors[_i].name, "LM3") != NULL,
                              "%s: %u keys", vectors[_i].name, got.count);
                break;
            }
            ck_assert_msg(i < got.count && strcmp(got.text[i], want) == 0, "%s: key %u is %s",
                          vectors[_i].name, i, i < got.count ? got.text[i] : "missing");
        }
    }
END_TEST

START_TEST(unfull_chunk_of_lmcache_continues_the_chain)
    {
        uint32_t tokens[600];
        struct answers got;
        struct sl_error why = {0};
        range(tokens, 0, 600);
        struct sl_keys_request request = {.format = "lmcache-sha256-cbor",
                                          .block_tokens = 256,
                                          .tokens = tokens,
                                          .token_count = 600,
                                          .seed = "0",
                                          .partial = true};

        ck_assert_int_eq(derive(&request, &got, &why), SL_OK);

        ck_assert_uint_eq(got.count, 3);
        ck_assert_str_eq(got.text[0], LM1);
        ck_assert_str_eq(got.text[2],
                         "a3716f387492558fd7bd92b6c83590f68851af0169edaa10a54c698a08aaa9f0");
    }
END_TEST

START_TEST(integers_of_every_width_are_pickled_as_cpython_does)
    {
        static const uint32_t tokens[] = {0, 255, 256, 65535, 65536, 151643, 2147483647};
        struct answers got;
        struct sl_error why = {0};
        struct sl_keys_request request = {
            .format = "fastdeploy", .block_tokens = 7, .tokens = tokens, .token_count = 7};

        ck_assert_int_eq(derive(&request, &got, &why), SL_OK);

        ck_assert_str_eq(got.text[0],
                         "dd5eae04f1ae6732ccd13734125785505b4540f8b8d8274a483b3dc1fce93381");
    }
END_TEST

static void assert_stream(const struct keys_buffer *stream, const char *hex)
{
    char text[1024] = "";
    ck_assert(!stream->failed && stream->length * 2 < sizeof(text));
    for (size_t i = 0; i < stream->length; i++) {
        snprintf(text + 2 * i, 3, "%02x", stream->at[i]);
    }
    ck_assert_str_eq(text, hex);
}

START_TEST(encodings_are_byte_exact)
    {
        static const uint32_t one_to_four[] = {1, 2, 3, 4}, seven[] = {7},
                              mixed[] = {1, 2, 3, 300, 70000};
        static const unsigned char zeros[32];
        struct keys_buffer stream = {0};
        struct keys_block block = {
            .tokens = one_to_four, .token_count = 4, .parent = "", .parent_is_text = true};

        keys_pickle_lists(&stream, 4, &block);
        assert_stream(&stream, "80049511000000000000005d94284b014b024b034b04655d9486942e");
        block.tokens = seven;
        block.token_count = 1;
        keys_pickle_lists(&stream, 4, &block);
        assert_stream(&stream, "8004950a000000000000005d944b07615d9486942e");
        block.tokens = one_to_four;
        block.token_count = 3;
        keys_pickle_triple(&stream, 4, &block);
        assert_stream(&stream, "8004950f000000000000008c00944b014b024b0387944e87942e");
        block = (struct keys_block){
            .tokens = mixed, .token_count = 5, .parent = zeros, .parent_length = 32};
        keys_pickle_triple(&stream, 5, &block);
        assert_stream(&stream, "80059538000000000000004320"
                               "0000000000000000000000000000000000000000000000000000000000000000"
                               "94284b014b024b034d2c014a7011010074944e87942e");
        block.token_count = 3;
        keys_cbor_triple(&stream, &block);
        assert_stream(&stream, "835820"
                               "0000000000000000000000000000000000000000000000000000000000000000"
                               "83010203f6");
        keys_pickle_text(&stream, 5, "0", 1);
        assert_stream(&stream, "80059505000000000000008c0130942e");
        keys_cbor_text(&stream, "vllm-none-hash", 14);
        assert_stream(&stream, "6e766c6c6d2d6e6f6e652d68617368");
        keys_buffer_fini(&stream);
    }
END_TEST

/* The seed's hash is the parent of block 0: naming it as the parent gives the same keys. */
static const struct {
    const char *format, *seed, *none;
} seeds[] = {
    {"vllm-sha256", "0", NONE_0_SHA},          {"vllm-sha256", NULL, NONE_TEXT_SHA},
    {"vllm-sha256-cbor", "0", NONE_0_CBOR},    {"vllm-sha256-cbor", "", NONE_TEXT_CBOR},
    {"vllm-xxhash", "0", NONE_0_XXHASH},       {"lmcache-sha256", "0", NONE_0_SHA},
    {"lmcache-sha256-cbor", "0", NONE_0_CBOR},
};

START_TEST(hash_of_the_seed_is_the_parent_of_block_0)
    {
        static const uint32_t tokens[] = {1, 2};
        struct answers by_seed, by_parent;
        struct sl_error why = {0};
        struct sl_keys_request request = {.format = seeds[_i].format,
                                          .block_tokens = 2,
                                          .tokens = tokens,
                                          .token_count = 2,
                                          .seed = seeds[_i].seed};

        ck_assert_int_eq(derive(&request, &by_seed, &why), SL_OK);
        request.parent = seeds[_i].none;
        ck_assert_int_eq(derive(&request, &by_parent, &why), SL_OK);

        ck_assert_str_eq(by_seed.text[0], by_parent.text[0]);
    }
END_TEST

static void sluice_key(const char *extras, const char *seed, uint32_t block_tokens, uint32_t count,
                       char *out)
{
    uint32_t tokens[16];
    struct answers got;
    struct sl_error why = {0};
    range(tokens, 1, 16);
    struct sl_keys_request request = {.format = "sluice",
                                      .block_tokens = block_tokens,
                                      .tokens = tokens,
                                      .token_count = count,
                                      .extras = extras,
                                      .seed = seed,
                                      .partial = true};
    ck_assert_msg(derive(&request, &got, &why) == SL_OK, "%s", why.text);
    strcpy(out, got.text[got.count - 1]);
}

START_TEST(own_format_keeps_its_keys)
    {
        char key[SL_KEYS_KEY_BYTES_MAX];

        /* Golden, from an independent encoder: keys of this format lie on disks. */
        sluice_key(NULL, NULL, 4, 4, key);
        ck_assert_str_eq(key, "4f05d5a1e00d3b224ca419e829e56bb2293a6beba745e45abdce755255ef41ac");
        sluice_key("[[{\"lora\": \"x\", \"id\": 7}, [\"mm\", -1], null, {\"hex\": \"00ff\"}]]", "s",
                   8, 8, key);
        ck_assert_str_eq(key, "3d7eb22c6e19ed4c500ef4ba96d3efe81b34713a3b3bf2003d0297db624e2ffe");
        sluice_key(NULL, NULL, 4, 6, key);
        ck_assert_str_eq(
            key, "a87de993ef6a2dd6442f0e6289654eab3fd922e0f53dbf1d87d827efcfe78eae:partial:2");
    }
END_TEST

/* Pairs that must not share a key. */
static const struct {
    const char *why, *extras_a, *extras_b;
    uint32_t block_tokens_a, block_tokens_b, count_a, count_b;
    const char *seed_a, *seed_b;
} differing[] = {
    {"lora and salt", "[[{\"lora\": \"x\"}]]", "[[{\"salt\": \"x\"}]]", 4, 4, 4, 4, NULL, NULL},
    {"named and bare", "[[{\"lora\": \"x\"}]]", "[[\"lora\", \"x\"]]", 4, 4, 4, 4, NULL, NULL},
    {"text and bytes", "[[\"ab\"]]", "[[{\"hex\": \"6162\"}]]", 4, 4, 4, 4, NULL, NULL},
    {"where texts are cut", "[[\"ab\", \"c\"]]", "[[\"a\", \"bc\"]]", 4, 4, 4, 4, NULL, NULL},
    {"nesting", "[[[\"a\"], \"b\"]]", "[[[\"a\", \"b\"]]]", 4, 4, 4, 4, NULL, NULL},
    {"null and none", "[[null]]", "[[]]", 4, 4, 4, 4, NULL, NULL},
    {"integer and text", "[[1]]", "[[\"1\"]]", 4, 4, 4, 4, NULL, NULL},
    {"block size", NULL, NULL, 4, 8, 4, 4, NULL, NULL},
    {"seed", NULL, NULL, 4, 4, 4, 4, "a", "b"},
};

START_TEST(own_format_separates)
    {
        char a[SL_KEYS_KEY_BYTES_MAX], b[SL_KEYS_KEY_BYTES_MAX];

        sluice_key(differing[_i].extras_a, differing[_i].seed_a, differing[_i].block_tokens_a,
                   differing[_i].count_a, a);
        sluice_key(differing[_i].extras_b, differing[_i].seed_b, differing[_i].block_tokens_b,
                   differing[_i].count_b, b);

        ck_assert_msg(strncmp(a, b, 64) != 0, "%s gives the same key", differing[_i].why);
    }
END_TEST

START_TEST(own_format_takes_members_in_any_order)
    {
        char a[SL_KEYS_KEY_BYTES_MAX], b[SL_KEYS_KEY_BYTES_MAX];

        sluice_key("[[{\"lora\": \"x\", \"salt\": 1}]]", NULL, 4, 4, a);
        sluice_key("[[{\"salt\": 1, \"lora\": \"x\"}]]", NULL, 4, 4, b);

        ck_assert_str_eq(a, b);
    }
END_TEST

static const struct {
    struct sl_keys_request request; /* of tokens 1..8 */
    const char *names;              /* in the text of the error */
} refused[] = {
    {{.format = "md5", .block_tokens = 4}, "format: 'md5'"},
    {{.format = NULL, .block_tokens = 4}, "format: ''"},
    {{.format = "sluice", .block_tokens = 0}, "block_tokens: 0"},
    {{.format = "sluice", .block_tokens = 65537}, "block_tokens: 65537"},
    {{.format = "vllm-sha256", .block_tokens = 4, .pickle_protocol = 3}, "pickle_protocol: 3"},
    {{.format = "vllm-sha256", .block_tokens = 4, .parent = "12"}, "parent: 2 characters"},
    {{.format = "vllm-xxhash", .block_tokens = 4, .parent = SG1}, "32 hex digits"},
    {{.format = "vllm-xxhash", .block_tokens = 4, .parent = "0123456789abcdef0123456789abcdeg"},
     "character 31"},
    {{.format = "sluice", .block_tokens = 4, .extras = "[["}, "extras: not JSON"},
    {{.format = "sluice", .block_tokens = 4, .extras = "{}"}, "a list with one list a block"},
    {{.format = "sluice", .block_tokens = 4, .extras = "[[], 5]"}, "entry of block 1"},
    {{.format = "sluice", .block_tokens = 4, .extras = "[[], [], [\"x\"]]"},
     "block 2 is beyond the 2"},
    {{.format = "sluice", .block_tokens = 4, .extras = "[[], [\"a\", 1.5]]"}, "block 1, element 1"},
    {{.format = "sluice", .block_tokens = 4, .extras = "[[true]]"}, "boolean"},
    {{.format = "sluice", .block_tokens = 4, .extras = "[[{}]]"}, "1 to 8 members"},
    {{.format = "vllm-sha256", .block_tokens = 4, .extras = "[[{\"lora\": \"a\"}]]"},
     "no named element"},
    {{.format = "vllm-sha256", .block_tokens = 4, .extras = "[[{\"hex\": \"0\"}]]"}, "odd number"},
    {{.format = "vllm-sha256", .block_tokens = 4, .extras = "[[{\"hex\": \"0g\"}]]"},
     "no hex digit"},
    {{.format = "vllm-sha256", .block_tokens = 4, .extras = "[[\"a\", {\"same_as\": 1}]]"},
     "element 1: \"same_as\""},
    {{.format = "vllm-sha256", .block_tokens = 4, .extras = "[[\"a\"], [{\"same_as\": 0}]]"},
     "block 1, element 0"},
    {{.format = "vllm-sha256", .block_tokens = 4, .extras = "[[{\"same_as\": -1}]]"}, "from 0 up"},
    {{.format = "vllm-sha256", .block_tokens = 4, .extras = "[[[[[[[[[[1]]]]]]]]]]"},
     "nested deeper"},
    {{.format = "sglang", .block_tokens = 4, .extras = "[[\"lora\"]]"}, "one object"},
    {{.format = "sglang", .block_tokens = 4, .extras = "[[{\"lora\": \"a\"}]]"}, "unknown member"},
    {{.format = "sglang", .block_tokens = 4, .extras = "[[{\"extra_key\": 1}]]"}, "text or null"},
    {{.format = "sglang", .block_tokens = 4, .extras = "[[], [{\"extra_key\": \"a\"}]]"},
     "only in block 0"},
    {{.format = "lmcache-sha256", .block_tokens = 4, .extras = "[[\"a\"]]"}, "takes no extras"},
};

START_TEST(bad_requests_are_refused_by_name)
    {
        uint32_t tokens[8];
        struct answers got;
        struct sl_error why = {0};
        struct sl_keys_request request = refused[_i].request;
        range(tokens, 1, 8);
        request.tokens = tokens;
        request.token_count = 8;

        sl_err err = derive(&request, &got, &why);

        ck_assert_int_eq(err, SL_ERR_INVALID);
        ck_assert_msg(strstr(why.text, refused[_i].names) != NULL, "'%s' is not in '%s'",
                      refused[_i].names, why.text);
        ck_assert_uint_eq(got.count, 0);
    }
END_TEST

static const struct {
    const char *line, *format;
    sl_err want;
    const char *printed; /* or what the error names */
} lines[] = {
    {"{\"tokens\": [1,2,3,4]}", "fastdeploy", SL_OK,
     "a9da410d139726dcdc1faa54c1add82ce9b2b5c23cbe03fca59c4da3651b69d2\n"},
    {"{\"tokens\": [1,2,3,4], \"extras\": [], \"seed\": \"\", \"parent\": \"\"}", "fastdeploy",
     SL_OK, "a9da410d139726dcdc1faa54c1add82ce9b2b5c23cbe03fca59c4da3651b69d2\n"},
    {"{\"tokens\": [1,2,3,4], \"extras\": null, \"seed\": null, \"parent\": null}", "fastdeploy",
     SL_OK, "a9da410d139726dcdc1faa54c1add82ce9b2b5c23cbe03fca59c4da3651b69d2\n"},
    {"{\"tokens\": []}", "fastdeploy", SL_OK, ""},
    {"{\"extras\": []}", "fastdeploy", SL_ERR_INVALID, "tokens: missing"},
    {"{\"tokens\": [1, -1]}", "fastdeploy", SL_ERR_INVALID, "tokens: element 1"},
    {"{\"tokens\": [4294967296]}", "fastdeploy", SL_ERR_INVALID, "tokens: element 0"},
    {"{\"tokens\": [1.0]}", "fastdeploy", SL_ERR_INVALID, "tokens: element 0"},
    {"{\"tokens\": [1], \"sead\": \"\"}", "fastdeploy", SL_ERR_INVALID, "'sead'"},
    {"{\"tokens\": [1], \"seed\": 0}", "fastdeploy", SL_ERR_INVALID, "seed: not a text"},
    {"{\"tokens\": [1], \"tokens\": [1]}", "fastdeploy", SL_ERR_INVALID, "duplicate"},
    {"[1]", "fastdeploy", SL_ERR_INVALID, "not a JSON object"},
    {"{\"tokens\": [1]", "fastdeploy", SL_ERR_INVALID, "line 1"},
    {"{\"tokens\": [1]}", "sha1", SL_ERR_INVALID, "format"},
};

START_TEST(json_line_prints_one_key_a_line)
    {
        struct sl_keys *keys = NULL;
        struct sl_error why = {0};
        char *printed = NULL;
        size_t printed_bytes = 0;
        struct sl_keys_request form = {.format = lines[_i].format, .block_tokens = 4};
        FILE *out = open_memstream(&printed, &printed_bytes);
        ck_assert_int_eq(sl_keys_create(&keys, &why), SL_OK);

        sl_err err =
            sl_keys_print_json_line(keys, &form, lines[_i].line, strlen(lines[_i].line), out, &why);

        fclose(out);
        ck_assert_int_eq(err, lines[_i].want);
        if (err == SL_OK) {
            ck_assert_str_eq(printed, lines[_i].printed);
        } else {
            ck_assert_msg(strstr(why.text, lines[_i].printed) != NULL, "%s", why.text);
            ck_assert_uint_eq(printed_bytes, 0);
        }
        free(printed);
        sl_keys_destroy(&keys);
    }
END_TEST

static sl_err stop_at_once(void *context, uint64_t block, const char *text, uint32_t length)
{
    (void)block, (void)text, (void)length;
    ++*(uint32_t *)context;
    return SL_ERR_CANCELLED;
}

START_TEST(callback_ends_the_run)
    {
        static const uint32_t tokens[] = {1, 2, 3, 4};
        struct sl_keys *keys = NULL;
        uint32_t calls = 0;
        struct sl_keys_request request = {
            .format = "sluice", .block_tokens = 1, .tokens = tokens, .token_count = 4};
        ck_assert_int_eq(sl_keys_create(&keys, NULL), SL_OK);

        sl_err err = sl_keys_derive(keys, &request, stop_at_once, &calls, NULL);

        ck_assert_int_eq(err, SL_ERR_CANCELLED);
        ck_assert_uint_eq(calls, 1);
        sl_keys_destroy(&keys);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("keys");
    TCase *cases = tcase_create("keys");
    tcase_add_loop_test(cases, keys_equal_the_engines_own, 0, SL_COUNT(vectors));
    tcase_add_test(cases, unfull_chunk_of_lmcache_continues_the_chain);
    tcase_add_test(cases, integers_of_every_width_are_pickled_as_cpython_does);
    tcase_add_test(cases, encodings_are_byte_exact);
    tcase_add_loop_test(cases, hash_of_the_seed_is_the_parent_of_block_0, 0, SL_COUNT(seeds));
    tcase_add_test(cases, own_format_keeps_its_keys);
    tcase_add_loop_test(cases, own_format_separates, 0, SL_COUNT(differing));
    tcase_add_test(cases, own_format_takes_members_in_any_order);
    tcase_add_loop_test(cases, bad_requests_are_refused_by_name, 0, SL_COUNT(refused));
    tcase_add_loop_test(cases, json_line_prints_one_key_a_line, 0, SL_COUNT(lines));
    tcase_add_test(cases, callback_ends_the_run);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
