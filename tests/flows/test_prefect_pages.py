from flows.prefect_pages import flow_run_url, page_of, split_flow_run_url


def test_pages_lie_beside_the_api_of_their_server() -> None:
    assert page_of("http://127.0.0.1:4200/api") == page_of("http://127.0.0.1:4200/api/") == "http://127.0.0.1:4200"
    assert flow_run_url("http://127.0.0.1:4200/api", "ab-12") == "http://127.0.0.1:4200/runs/flow-run/ab-12"


def test_the_page_of_a_run_tells_its_server_and_its_id() -> None:
    url = flow_run_url("https://prefect.example.org/api", "ab-12")
    assert split_flow_run_url(url) == ("https://prefect.example.org/api", "ab-12")
