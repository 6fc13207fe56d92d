if(SL_VERBS_INCLUDE)
    sl_test(loans_test LABEL unit SOURCES unit/actors/transporter/loans_test.c support/fabric_end.c support/fake_env.c support/fake_net.c
        support/fake_verbs.c LIBS sluice_transporter)
endif()
