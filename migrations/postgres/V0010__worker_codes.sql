-- What a transcode worker can meet, beyond what the inbox knew when it was made.

insert into euterpe.error_codes (code, class, policy, max_tries, meaning) values
  ('storage_refused', 'storage',   'rest',  null, 'the store refused a request that asking again would not change'),
  ('storage_clock',   'storage_transient', 'retry', 3, 'the store says that our clock is wrong'),
  ('stream_limit',    'limits',    'rest',  null, 'it has more streams than allowed'),
  ('frame_limit',     'limits',    'rest',  null, 'it has more pictures than allowed'),
  ('memory_limit',    'limits',    'retry', 2,    'the encoder needed more memory than allowed'),
  ('cpu_limit',       'limits',    'rest',  null, 'the encoder needed more processor time than allowed'),
  ('encoder_missing', 'encode',    'retry', 2,    'this worker''s ffmpeg has no such encoder'),
  ('request_unreadable', 'internal', 'rest', null, 'the request was written for another release');
